//! CPU feature detection: the processor's features as a value from which tests can remove features.

#[cfg(all(feature = "std", target_arch = "x86_64", any(target_os = "linux", target_os = "android")))]
mod amx_detection;

use core::fmt;
#[cfg(feature = "std")]
use std::sync::OnceLock;
#[cfg(feature = "std")]
use std::sync::atomic::{AtomicU32, Ordering};

/// A set of instruction-set groups.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuFeatures(u32);

impl CpuFeatures {
    /// No features beyond the target's baseline.
    pub const NONE: Self = Self(0);
    /// x86: AVX2, FMA and F16C.
    pub const AVX2: Self = Self(1);
    /// x86: AVX-512 F, BW, DQ, VL and VNNI.
    pub const AVX512: Self = Self(1 << 1);
    /// Arm: NEON (always present on 64-bit Arm).
    pub const NEON: Self = Self(1 << 2);
    /// Arm: int8 dot products, `sdot`; implies NEON.
    pub const DOTPROD: Self = Self(1 << 3);
    /// Arm: int8 matrix multiply, `smmla`; implies `sdot`.
    pub const I8MM: Self = Self(1 << 4);
    /// x86: AVX-VNNI, int8 dot products; implies AVX2.
    pub const AVXVNNI: Self = Self(1 << 5);
    /// x86: AMX, int8 tile matrix multiply; implies AVX-512.
    pub const AMX: Self = Self(1 << 6);

    /// All features with the names that `--cpu-features` and `doctor` use.
    pub const NAMES: &[(Self, &str)] = &[
        (Self::AVX2, "avx2"),
        (Self::AVXVNNI, "avxvnni"),
        (Self::AVX512, "avx512"),
        (Self::AMX, "amx"),
        (Self::NEON, "neon"),
        (Self::DOTPROD, "dotprod"),
        (Self::I8MM, "i8mm"),
    ];

    /// Dependencies between features: (feature, features that require it).
    const NEEDS: [(Self, Self); 4] = [
        (Self::AVX2, Self::AVX512.with(Self::AVXVNNI).with(Self::AMX)),
        (Self::AVX512, Self::AMX),
        (Self::NEON, Self::DOTPROD.with(Self::I8MM)),
        (Self::DOTPROD, Self::I8MM),
    ];

    /// Returns the feature with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(feature, _)| *feature)
    }

    /// Returns the union of both sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these features and all that they require.
    #[must_use]
    pub const fn complete(self) -> Self {
        let mut all = self.0;
        let mut i = 0;
        while i < Self::NEEDS.len() {
            let (needed, dependent) = Self::NEEDS[i];
            if all & dependent.0 != 0 {
                all |= needed.0;
            }
            i += 1;
        }
        Self(all)
    }

    /// Returns whether all features of `other` are included.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for CpuFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter().filter(|(feature, _)| self.contains(*feature));
        match names.next() {
            None => f.write_str("scalar"),
            Some((_, first)) => {
                f.write_str(first)?;
                names.try_for_each(|(_, name)| write!(f, "+{name}"))
            }
        }
    }
}

impl fmt::Debug for CpuFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The features of a processor. A value in which a feature is set is the permission to use it: the only ways
/// to obtain one are detection on the machine, removal of features, and [`Cpu::claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    features: CpuFeatures,
}

impl Cpu {
    /// Detects the features of this machine at run time.
    ///
    /// If CPUID reports AMX, the first call requests permission from Linux for this process to use it, after
    /// which alternate signal stacks must be larger, and tries an instruction in a child process.
    #[cfg(feature = "std")]
    pub fn detect() -> Self {
        static DETECTED: OnceLock<CpuFeatures> = OnceLock::new();
        let claimed = CpuFeatures(CLAIMED.load(Ordering::Relaxed));
        let features = DETECTED.get_or_init(|| Self::compiled().features.with(detected()));
        Self { features: features.with(claimed) }.without(CpuFeatures::NONE)
    }

    /// Makes [`Cpu::detect`] report these features too from now on, if the features that they require are
    /// present: for tests in which an emulator executes the instructions.
    ///
    /// # Safety
    /// Every instruction of these features must work in all threads of this process.
    #[cfg(feature = "std")]
    pub unsafe fn claim(features: CpuFeatures) {
        CLAIMED.fetch_or(features.0, Ordering::Relaxed);
    }

    /// Returns the features that the build requires of every machine.
    pub const fn compiled() -> Self {
        let mut features = CpuFeatures::NONE;
        if cfg!(all(target_feature = "avx2", target_feature = "fma", target_feature = "f16c")) {
            features = features.with(CpuFeatures::AVX2);
        }
        if cfg!(all(target_arch = "aarch64", target_feature = "neon")) {
            features = features.with(CpuFeatures::NEON);
        }
        Self { features }
    }

    /// Features that cannot be removed: there are no kernels without them.
    const LEAST: CpuFeatures =
        if cfg!(any(feature = "portable", not(all(target_arch = "aarch64", target_feature = "neon")))) {
            CpuFeatures::NONE
        } else {
            CpuFeatures::NEON
        };

    /// Removes features, and those that require them: AVX-512 and AVX-VNNI require AVX2, AMX requires
    /// AVX-512, dot products require NEON, and the matrix multiply requires dot products. Builds for 64-bit
    /// Arm without the crate feature `portable` keep NEON.
    #[must_use]
    pub const fn without(self, features: CpuFeatures) -> Self {
        let mut left = self.features.0 & !features.0 | Self::LEAST.0;
        let mut i = 0;
        while i < CpuFeatures::NEEDS.len() {
            let (needed, dependent) = CpuFeatures::NEEDS[i];
            if left & needed.0 == 0 {
                left &= !dependent.0;
            }
            i += 1;
        }
        Self { features: CpuFeatures(left) }
    }

    /// Returns the baseline: portable code only, or the features that cannot be removed.
    pub const fn scalar() -> Self {
        Self { features: Self::LEAST }
    }

    /// Returns whether all of `features` may be used.
    pub const fn has(self, features: CpuFeatures) -> bool {
        self.features.contains(features)
    }

    /// Returns the feature set.
    pub const fn features(self) -> CpuFeatures {
        self.features
    }
}

/// The features passed to [`Cpu::claim`].
#[cfg(feature = "std")]
static CLAIMED: AtomicU32 = AtomicU32::new(0);

#[cfg(all(feature = "std", target_arch = "x86_64"))]
fn detected() -> CpuFeatures {
    use std::arch::is_x86_feature_detected as has;
    if !(has!("avx2") && has!("fma") && has!("f16c")) {
        return CpuFeatures::NONE;
    }
    let foundation = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    let avx512 = if foundation && has!("avx512vnni") { CpuFeatures::AVX512 } else { CpuFeatures::NONE };
    let vnni = if has!("avxvnni") { CpuFeatures::AVXVNNI } else { CpuFeatures::NONE };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let amx = if avx512 != CpuFeatures::NONE && amx_detection::usable() {
        CpuFeatures::AMX
    } else {
        CpuFeatures::NONE
    };
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let amx = CpuFeatures::NONE;
    CpuFeatures::AVX2.with(avx512).with(vnni).with(amx)
}

#[cfg(all(feature = "std", target_arch = "aarch64"))]
fn detected() -> CpuFeatures {
    use std::arch::is_aarch64_feature_detected as has;
    match (has!("dotprod"), has!("dotprod") && has!("i8mm")) {
        (false, _) => CpuFeatures::NONE,
        (true, false) => CpuFeatures::DOTPROD,
        (true, true) => CpuFeatures::DOTPROD.with(CpuFeatures::I8MM),
    }
}

#[cfg(all(feature = "std", not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn detected() -> CpuFeatures {
    CpuFeatures::NONE
}
