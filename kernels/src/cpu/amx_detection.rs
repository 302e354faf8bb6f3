//! Detects whether AMX can be used: the processor has it, the operating system saves its registers and grants
//! permission, and a trial instruction works.
//!
//! Tile registers are large, so Linux grants them only to processes that request them. A hypervisor may
//! report the CPUID bits and still trap the instructions; the trial multiplication therefore runs in a child
//! process that shares our memory and exits if the instruction faults.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// Requests permission, and returns whether this process may use int8 tiles.
pub(super) fn usable() -> bool {
    cpu_has_amx() && os_saves_tiles() && request_permission() && trial_succeeds()
}

fn cpu_has_amx() -> bool {
    const AMX_TILE: u32 = 1 << 24;
    const AMX_INT8: u32 = 1 << 25;
    const AMX: u32 = AMX_TILE | AMX_INT8;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & AMX == AMX
}

/// Returns whether the operating system saves the tiles and their configuration on a context switch.
fn os_saves_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const XTILECFG: u64 = 1 << 17;
    const XTILEDATA: u64 = 1 << 18;
    const XTILE: u64 = XTILECFG | XTILEDATA;
    // SAFETY: the OSXSAVE bit says that the register can be read.
    __cpuid(1).ecx & OSXSAVE != 0 && unsafe { xcr0() } & XTILE == XTILE
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: extended control register 0 always exists.
    unsafe { _xgetbv(0) }
}

/// Requests permission to use tile data (`XTILEDATA`), for all threads of the process.
fn request_permission() -> bool {
    const SYS_ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    // SAFETY: the system call does not access our memory.
    unsafe { system_call(SYS_ARCH_PRCTL, [ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA, 0, 0]) == 0 }
}

/// A configuration of three tiles, the input and the output.
#[repr(C, align(64))]
struct Trial {
    configuration: [u8; 64],
    ones: [[u8; 64]; 16],
    result: [[i32; 16]; 16],
}

fn trial_succeeds() -> bool {
    let mut configuration = [0; 64];
    configuration[0] = 1;
    for tile in 0..3 {
        configuration[16 + 2 * tile] = 64;
        configuration[48 + tile] = 16;
    }
    let mut trial = Trial { configuration, ones: [[1; 64]; 16], result: [[0; 16]; 16] };
    // SAFETY: the trial has the size that the instructions access, and is not used elsewhere.
    unsafe { in_a_child(&mut trial) && trial.result == [[64; 16]; 16] }
}

/// Runs the multiplication in a child process that shares our memory but has its own signal handlers, and
/// waits until it has exited. Returns false if no child was created or if it failed.
///
/// # Safety
/// The machine must run Linux.
unsafe fn in_a_child(trial: &mut Trial) -> bool {
    const SYS_RT_SIGPROCMASK: usize = 14;
    const SIG_SETMASK: usize = 2;
    const SYS_WAIT4: usize = 61;
    /// `__WALL`: also children without an exit signal.
    const WALL: usize = 0x4000_0000;
    // Block all signals but SIGILL and SIGSEGV: no signal handler of the host runs in the child, and nothing
    // interrupts the wait.
    let (blocked, mut before) = (!(1_u64 << 3 | 1 << 10), 0_u64);
    let mut status = -1_i32;
    // SAFETY: every address is that of a local variable.
    unsafe {
        if system_call(
            SYS_RT_SIGPROCMASK,
            [SIG_SETMASK, (&raw const blocked).addr(), (&raw mut before).addr(), 8],
        ) != 0
        {
            return false;
        }
        let child = multiply(trial);
        let ended =
            child > 0 && system_call(SYS_WAIT4, [child as usize, (&raw mut status).addr(), WALL, 0]) == child;
        system_call(SYS_RT_SIGPROCMASK, [SIG_SETMASK, (&raw const before).addr(), 0, 8]);
        ended && status == 0
    }
}

/// Creates the child, which runs the multiplication; returns its process id once it has exited, or an error.
///
/// # Safety
/// As for [`in_a_child`].
unsafe fn multiply(trial: &mut Trial) -> isize {
    // CLONE_VM and CLONE_VFORK: shared memory, and the parent is suspended until the child exits; no exit
    // signal.
    const FLAGS: usize = 0x100 | 0x4000;
    // The `sigaction` of the child: handler, SA_RESTORER, restorer, signal mask.
    let mut action = [0_u64, 0x0400_0000, 0, 0];
    let child: isize;
    // SAFETY: the child runs on our stack below the part in use, and exits within the block. Its signal
    // actions are a copy of ours. If an instruction faults, the child's handler exits instead of letting the
    // signal kill it: that would write a core dump of its memory, which is ours, and older kernels would kill
    // every process that shares the memory.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "lea rax, [rip + 3f]",
            "mov [{action}], rax",
            "mov [{action} + 16], rax",
            "mov rsi, {action}",
            "xor edx, edx",
            "mov r10d, 8",
            "mov edi, 4",
            "mov eax, 13",
            "syscall",
            "mov edi, 11",
            "mov eax, 13",
            "syscall",
            "ldtilecfg [{trial}]",
            "mov edx, 64",
            "tilezero tmm0",
            "tileloadd tmm1, [{trial} + rdx + 64]",
            "tileloadd tmm2, [{trial} + rdx + 64]",
            "tdpbssd tmm0, tmm1, tmm2",
            "tilestored [{trial} + rdx + 1088], tmm0",
            "tilerelease",
            "xor edi, edi",
            "jmp 4f",
            "3:",
            "mov edi, 1",
            "4:",
            "mov eax, 60",
            "syscall",
            "2:",
            trial = in(reg) &raw mut *trial,
            action = in(reg) action.as_mut_ptr(),
            inout("rax") 56_usize => child,
            inout("rdi") FLAGS => _,
            inout("rsi") 0_usize => _,
            inout("rdx") 0_usize => _,
            inout("r10") 0_usize => _,
            inout("r8") 0_usize => _,
            out("rcx") _,
            out("r11") _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _,
        );
    }
    child
}

/// # Safety
/// The machine must run Linux, and the arguments must be valid for the system call.
unsafe fn system_call(number: usize, arguments: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: this is Linux, and `arguments` are valid for system call `number` (see `# Safety`).
    unsafe {
        asm!(
            "syscall",
            inout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_faults_does_no_harm() {
        let mut trial = Trial { configuration: [1; 64], ones: [[1; 64]; 16], result: [[0; 16]; 16] };
        // SAFETY: the trial is valid; its tile configuration is invalid, so that every machine faults.
        assert!(!unsafe { in_a_child(&mut trial) });
        assert_eq!(trial.result, [[0; 16]; 16]);
    }

    #[test]
    fn the_answer_is_that_of_the_processor() {
        // Without permission, the child faults even on a processor with AMX: request it first.
        let permitted = request_permission();
        // On a processor without AMX, the child must have faulted.
        assert_eq!(trial_succeeds() && permitted, usable());
        assert!(cpu_has_amx() || !usable());
    }
}
