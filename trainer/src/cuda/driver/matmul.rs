//! Matmuls with cuBLASLt. The algorithm for a shape is chosen once, by its heuristic, and cached.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

use cudarc::cublaslt::{result as lt, sys};
use cudarc::driver::result as driver;
use siskin_format::Result;

use super::check;
use crate::cuda::Precision;
use crate::cuda::tape::{DeviceMatrix, DevicePtr, Fp8Format, TapeMatmul};

/// The workspace size in bytes: NVIDIA's recommendation for Hopper.
pub(super) const WORKSPACE: usize = 32 << 20;

/// The maximum number of cached shapes: batches with ever new row counts would otherwise fill host memory.
const MAX_SHAPES: usize = 1024;

/// The key of a cached algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MatmulKey {
    precision: u8,
    sizes: [usize; 3],
    strides: [usize; 3],
    transposed: [bool; 2],
    f32_output: bool,
    accumulate: bool,
    bias: bool,
    pre_activation: bool,
    fp8: Option<[Fp8Format; 2]>,
    /// Of a, b, the output, the bias, and the pre-activation of GELU.
    alignments: [u32; 5],
}

/// The descriptors and the algorithm of a matmul.
struct PreparedMatmul {
    product: MatmulDescriptor,
    layouts: [MatrixLayout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// A cuBLASLt matmul descriptor.
struct MatmulDescriptor(sys::cublasLtMatmulDesc_t);

impl Drop for MatmulDescriptor {
    fn drop(&mut self) {
        // SAFETY: it was created by cuBLASLt, and nothing else destroys it; enqueued work does not need it.
        let _ = unsafe { lt::destroy_matmul_desc(self.0) };
    }
}

/// A cuBLASLt matrix layout.
struct MatrixLayout(sys::cublasLtMatrixLayout_t);

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: it was created by cuBLASLt, and nothing else destroys it; enqueued work does not need it.
        let _ = unsafe { lt::destroy_matrix_layout(self.0) };
    }
}

/// A cuBLASLt matmul preference.
struct MatmulPreference(sys::cublasLtMatmulPreference_t);

impl Drop for MatmulPreference {
    fn drop(&mut self) {
        // SAFETY: it was created by cuBLASLt, and nothing else destroys it; chosen algorithms do not need it.
        let _ = unsafe { lt::destroy_matmul_pref(self.0) };
    }
}

/// The cache of matmuls.
pub(super) struct MatmulCache {
    handle: sys::cublasLtHandle_t,
    workspace: DevicePtr,
    prepared: HashMap<MatmulKey, PreparedMatmul>,
    /// Matmuls for which cuBLASLt has no GELU epilogue.
    without_epilogue: HashSet<MatmulKey>,
}

fn alignment(place: DevicePtr) -> u32 {
    1 << place.trailing_zeros().min(8)
}

impl MatmulKey {
    fn of(product: &TapeMatmul) -> Self {
        Self {
            precision: product.precision as u8,
            sizes: product.shape,
            strides: [product.a.stride, product.b.stride, product.out.stride],
            transposed: [product.a.transposed, product.b.transposed],
            f32_output: product.f32_output,
            accumulate: product.accumulate,
            bias: product.bias != 0,
            pre_activation: product.pre_activation != 0,
            fp8: product.fp8.map(|fp8| fp8.map(|fp8| fp8.format)),
            alignments: [product.a.ptr, product.b.ptr, product.out.ptr, product.bias, product.pre_activation]
                .map(alignment),
        }
    }
}

fn data_type(precision: Precision) -> sys::cudaDataType {
    match precision {
        Precision::F32 => sys::cudaDataType::CUDA_R_32F,
        Precision::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        Precision::Fp16 => sys::cudaDataType::CUDA_R_16F,
    }
}

/// Returns the element type of a matrix, which may be fp8.
fn operand_type(own: sys::cudaDataType, fp8: Option<Fp8Format>) -> sys::cudaDataType {
    match fp8 {
        None => own,
        Some(Fp8Format::E4M3) => sys::cudaDataType::CUDA_R_8F_E4M3,
        Some(Fp8Format::E5M2) => sys::cudaDataType::CUDA_R_8F_E5M2,
    }
}

/// Returns the layout of a matrix. cuBLASLt is column-major: it reads our row-major matrix as its transpose.
fn layout(
    kind: sys::cudaDataType,
    matrix: DeviceMatrix,
    [rows, columns]: [usize; 2],
) -> Result<MatrixLayout> {
    let [rows, columns] = if matrix.transposed { [columns, rows] } else { [rows, columns] };
    let made = lt::create_matrix_layout(kind, columns as u64, rows as u64, matrix.stride as i64);
    check("describe a matrix", made).map(MatrixLayout)
}

/// Returns `CUBLAS_OP_N` or `CUBLAS_OP_T`.
fn operation(matrix: DeviceMatrix) -> i32 {
    i32::from(matrix.transposed)
}

/// Sets an attribute of a matmul descriptor.
fn set_attribute<T>(
    product: &MatmulDescriptor,
    which: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<()> {
    let place: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the descriptor was created and not destroyed; the value is read before this returns.
    check("describe a matmul", unsafe {
        lt::set_matmul_desc_attribute(product.0, which, place, size_of::<T>())
    })
}

/// Returns the epilogue of a matmul; `None` for the default.
fn epilogue(shape: MatmulKey) -> Option<sys::cublasLtEpilogue_t> {
    use sys::cublasLtEpilogue_t as After;
    match (shape.pre_activation, shape.bias) {
        (false, false) => None,
        (false, true) => Some(After::CUBLASLT_EPILOGUE_BIAS),
        (true, false) => Some(After::CUBLASLT_EPILOGUE_GELU_AUX),
        (true, true) => Some(After::CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
    }
}

/// Sets the pointers to bias, scales and pre-activation output of a matmul.
fn set_pointers(described: &MatmulDescriptor, product: &TapeMatmul) -> Result<()> {
    use sys::cublasLtMatmulDescAttributes_t as Says;
    if product.bias != 0 {
        set_attribute(described, Says::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product.bias)?;
    }
    if let Some([a, b]) = product.fp8 {
        set_attribute(described, Says::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b.inverse_scale)?;
        set_attribute(described, Says::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a.inverse_scale)?;
    }
    if product.pre_activation != 0 {
        set_attribute(described, Says::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &product.pre_activation)?;
    }
    Ok(())
}

/// Sets an attribute of a matmul preference.
fn set_preference<T>(
    preference: &MatmulPreference,
    which: sys::cublasLtMatmulPreferenceAttributes_t,
    value: &T,
) -> Result<()> {
    let place: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the preference was created and not destroyed; the value is read before this returns.
    check("set the matmul preference", unsafe {
        lt::set_matmul_pref_attribute(preference.0, which, place, size_of::<T>())
    })
}

impl MatmulCache {
    pub(super) fn new() -> Result<Self> {
        let handle = check("start cuBLASLt", lt::create_handle())?;
        // SAFETY: algorithms write the workspace before they read it.
        let workspace = check("allocate memory", unsafe { driver::malloc_sync(WORKSPACE) })?;
        Ok(Self { handle, workspace, prepared: HashMap::new(), without_epilogue: HashSet::new() })
    }

    fn prepare(&self, product: &TapeMatmul, shape: MatmulKey) -> Result<PreparedMatmul> {
        use sys::cublasLtMatmulDescAttributes_t as Says;
        use sys::cublasLtMatmulPreferenceAttributes_t as Wish;
        let [m, n, k] = product.shape;
        let own = data_type(product.precision);
        let of_out = if product.f32_output { sys::cudaDataType::CUDA_R_32F } else { own };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let made = lt::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F);
        let described = check("describe a matmul", made).map(MatmulDescriptor)?;
        // outᵀ = bᵀ · aᵀ.
        set_attribute(&described, Says::CUBLASLT_MATMUL_DESC_TRANSA, &operation(product.b))?;
        set_attribute(&described, Says::CUBLASLT_MATMUL_DESC_TRANSB, &operation(product.a))?;
        if let Some(after) = epilogue(shape) {
            set_attribute(&described, Says::CUBLASLT_MATMUL_DESC_EPILOGUE, &after)?;
        }
        if shape.pre_activation {
            set_attribute(
                &described,
                Says::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                &(product.out.stride as i64),
            )?;
        }
        set_pointers(&described, product)?;
        let layouts = [
            layout(operand_type(own, shape.fp8.map(|fp8| fp8[1])), product.b, [k, n])?,
            layout(operand_type(own, shape.fp8.map(|fp8| fp8[0])), product.a, [m, k])?,
            layout(of_out, product.out, [m, n])?,
        ];
        let preference =
            check("set the matmul preference", lt::create_matmul_pref()).map(MatmulPreference)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
        // Split-K partial sums stay in f32, and are reduced in an order that the shape fixes.
        let scheme = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme)?;
        let [a, b, out, ..] = shape.alignments;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out)?;
        let [b, a, out] = [0, 1, 2].map(|which: usize| layouts[which].0);
        // SAFETY: all of these were created above, and none is destroyed yet.
        let found =
            unsafe { lt::get_matmul_algo_heuristic(self.handle, described.0, b, a, out, out, preference.0) };
        let found = check(&format!("find an algorithm for {shape:?}"), found)?;
        Ok(PreparedMatmul { product: described, layouts, algorithm: found.algo })
    }

    /// Returns true if there is an algorithm for a matmul.
    pub(super) fn has(&mut self, product: &TapeMatmul) -> bool {
        let shape = MatmulKey::of(product);
        if self.prepared.contains_key(&shape) || self.without_epilogue.contains(&shape) {
            return self.prepared.contains_key(&shape);
        }
        self.evict_if_full();
        match self.prepare(product, shape) {
            Ok(prepared) => self.prepared.insert(shape, prepared).is_none(),
            Err(_) => !self.without_epilogue.insert(shape),
        }
    }

    /// Clears the cache when it has too many shapes.
    fn evict_if_full(&mut self) {
        if self.prepared.len() + self.without_epilogue.len() >= MAX_SHAPES {
            self.prepared.clear();
            self.without_epilogue.clear();
        }
    }

    /// Enqueues a matmul on a stream.
    pub(super) fn multiply(
        &mut self,
        product: &TapeMatmul,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<()> {
        let shape = MatmulKey::of(product);
        if !self.prepared.contains_key(&shape) {
            self.evict_if_full();
            let prepared = self.prepare(product, shape)?;
            self.prepared.insert(shape, prepared);
        }
        let Some(prepared) = self.prepared.get(&shape) else { return Ok(()) };
        set_pointers(&prepared.product, product)?;
        let (one, beta) = (1.0_f32, if product.accumulate { 1.0_f32 } else { 0.0 });
        let number = |number: &f32| std::ptr::from_ref(number).cast::<c_void>();
        let place = |matrix: DeviceMatrix| matrix.ptr as *mut c_void;
        let [b, a, out] = [0, 1, 2].map(|which: usize| prepared.layouts[which].0);
        // SAFETY: the prepared descriptors live as long as `self`; matrices lie in memory that was allocated, as the
        // tape says; one stream uses the workspace, one matmul after the other.
        let outcome = unsafe {
            lt::matmul(
                self.handle,
                prepared.product.0,
                number(&one),
                number(&beta),
                place(product.b),
                b,
                place(product.a),
                a,
                place(product.out),
                out,
                place(product.out),
                out,
                &raw const prepared.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        };
        check("multiply matrices", outcome)
    }
}

impl Drop for MatmulCache {
    fn drop(&mut self) {
        self.prepared.clear();
        // SAFETY: both were created here and are freed once; the device has finished all previous work.
        unsafe {
            let _ = lt::destroy_handle(self.handle);
            let _ = driver::free_sync(self.workspace);
        }
    }
}
