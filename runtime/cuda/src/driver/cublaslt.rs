//! Matmuls with cuBLASLt. The algorithm for a shape is chosen once, by its heuristic, and cached.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

use cudarc::cublaslt::{result as lt, sys};
use cudarc::driver::result as driver;
use siskin_device::{DeviceMatrix, DevicePtr, Fp8Format, GemmShape, MatmulCommand, Precision};
use siskin_format::Result;

use super::context::CudaStream;
use super::libraries::check;

/// The workspace size in bytes: NVIDIA's recommendation for Hopper.
pub(super) const WORKSPACE: usize = 32 << 20;

/// The maximum number of cached shapes: batches with ever new row counts would otherwise fill host memory.
const MAX_SHAPES: usize = 1024;

/// The key of a cached algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MatmulKey {
    precision: Precision,
    shape: GemmShape,
    a: OperandKey,
    b: OperandKey,
    out: OperandKey,
    f32_output: bool,
    accumulate: bool,
    bias: bool,
    pre_activation: bool,
    bias_alignment: u32,
    pre_activation_alignment: u32,
}

/// What an algorithm depends on of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OperandKey {
    stride: usize,
    transposed: bool,
    fp8: Option<Fp8Format>,
    /// Of the first element, in bytes; at most 256.
    alignment: u32,
}

impl OperandKey {
    fn of(matrix: DeviceMatrix, fp8: Option<Fp8Format>) -> Self {
        let DeviceMatrix { ptr, stride, transposed } = matrix;
        Self { stride, transposed, fp8, alignment: alignment(ptr) }
    }
}

/// The descriptors and the algorithm of a matmul.
struct PreparedMatmul {
    descriptor: MatmulDescriptor,
    a: MatrixLayout,
    b: MatrixLayout,
    out: MatrixLayout,
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
    fn of(matmul: &MatmulCommand) -> Self {
        Self {
            precision: matmul.precision,
            shape: matmul.shape,
            a: OperandKey::of(matmul.a, matmul.fp8.map(|fp8| fp8.a.format)),
            b: OperandKey::of(matmul.b, matmul.fp8.map(|fp8| fp8.b.format)),
            out: OperandKey::of(matmul.out, None),
            f32_output: matmul.f32_output,
            accumulate: matmul.accumulate,
            bias: matmul.bias != 0,
            pre_activation: matmul.pre_activation != 0,
            bias_alignment: alignment(matmul.bias),
            pre_activation_alignment: alignment(matmul.pre_activation),
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
    rows: usize,
    columns: usize,
) -> Result<MatrixLayout> {
    let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
    let made = lt::create_matrix_layout(kind, columns as u64, rows as u64, matrix.stride as i64);
    check("describe a matrix", made).map(MatrixLayout)
}

/// Returns `CUBLAS_OP_N` or `CUBLAS_OP_T`.
fn operation(matrix: DeviceMatrix) -> i32 {
    i32::from(matrix.transposed)
}

/// Sets an attribute of a matmul descriptor.
fn set_attribute<T>(
    matmul: &MatmulDescriptor,
    which: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<()> {
    let place: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the descriptor was created and not destroyed; the value is read before this returns.
    check("describe a matmul", unsafe {
        lt::set_matmul_desc_attribute(matmul.0, which, place, size_of::<T>())
    })
}

/// Returns the epilogue of a matmul; `None` for the default.
fn epilogue(key: MatmulKey) -> Option<sys::cublasLtEpilogue_t> {
    use sys::cublasLtEpilogue_t as After;
    match (key.pre_activation, key.bias) {
        (false, false) => None,
        (false, true) => Some(After::CUBLASLT_EPILOGUE_BIAS),
        (true, false) => Some(After::CUBLASLT_EPILOGUE_GELU_AUX),
        (true, true) => Some(After::CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
    }
}

/// Sets the pointers to bias, scales and pre-activation output of a matmul.
fn set_pointers(descriptor: &MatmulDescriptor, matmul: &MatmulCommand) -> Result<()> {
    use sys::cublasLtMatmulDescAttributes_t as Says;
    if matmul.bias != 0 {
        set_attribute(descriptor, Says::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &matmul.bias)?;
    }
    if let Some(fp8) = matmul.fp8 {
        set_attribute(descriptor, Says::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &fp8.b.inverse_scale)?;
        set_attribute(descriptor, Says::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &fp8.a.inverse_scale)?;
    }
    if matmul.pre_activation != 0 {
        set_attribute(descriptor, Says::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &matmul.pre_activation)?;
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

    fn prepare(&self, matmul: &MatmulCommand, key: MatmulKey) -> Result<PreparedMatmul> {
        use sys::cublasLtMatmulDescAttributes_t as Says;
        use sys::cublasLtMatmulPreferenceAttributes_t as Wish;
        let GemmShape { m, n, k } = matmul.shape;
        let own = data_type(matmul.precision);
        let of_out = if matmul.f32_output { sys::cudaDataType::CUDA_R_32F } else { own };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let made = lt::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F);
        let descriptor = check("describe a matmul", made).map(MatmulDescriptor)?;
        // outᵀ = bᵀ · aᵀ.
        set_attribute(&descriptor, Says::CUBLASLT_MATMUL_DESC_TRANSA, &operation(matmul.b))?;
        set_attribute(&descriptor, Says::CUBLASLT_MATMUL_DESC_TRANSB, &operation(matmul.a))?;
        if let Some(after) = epilogue(key) {
            set_attribute(&descriptor, Says::CUBLASLT_MATMUL_DESC_EPILOGUE, &after)?;
        }
        if key.pre_activation {
            set_attribute(
                &descriptor,
                Says::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                &(matmul.out.stride as i64),
            )?;
        }
        set_pointers(&descriptor, matmul)?;
        let b = layout(operand_type(own, key.b.fp8), matmul.b, k, n)?;
        let a = layout(operand_type(own, key.a.fp8), matmul.a, m, k)?;
        let out = layout(of_out, matmul.out, m, n)?;
        let preference =
            check("set the matmul preference", lt::create_matmul_pref()).map(MatmulPreference)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
        // Split-K partial sums stay in f32, and are reduced in an order that the shape fixes.
        let scheme = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key.b.alignment)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key.a.alignment)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key.out.alignment)?;
        set_preference(&preference, Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key.out.alignment)?;
        // SAFETY: all of these were created above, and none is destroyed yet.
        let found = unsafe {
            let (handle, descriptor) = (self.handle, descriptor.0);
            lt::get_matmul_algo_heuristic(handle, descriptor, b.0, a.0, out.0, out.0, preference.0)
        };
        let found = check(&format!("find an algorithm for {key:?}"), found)?;
        Ok(PreparedMatmul { descriptor, a, b, out, algorithm: found.algo })
    }

    /// Returns true if there is an algorithm for a matmul.
    pub(super) fn has(&mut self, matmul: &MatmulCommand) -> bool {
        let key = MatmulKey::of(matmul);
        if self.prepared.contains_key(&key) || self.without_epilogue.contains(&key) {
            return self.prepared.contains_key(&key);
        }
        self.evict_if_full();
        match self.prepare(matmul, key) {
            Ok(prepared) => self.prepared.insert(key, prepared).is_none(),
            Err(_) => !self.without_epilogue.insert(key),
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
    pub(super) fn multiply(&mut self, matmul: &MatmulCommand, stream: &CudaStream) -> Result<()> {
        let key = MatmulKey::of(matmul);
        if !self.prepared.contains_key(&key) {
            self.evict_if_full();
            let prepared = self.prepare(matmul, key)?;
            self.prepared.insert(key, prepared);
        }
        let Some(prepared) = self.prepared.get(&key) else { return Ok(()) };
        set_pointers(&prepared.descriptor, matmul)?;
        let (one, beta) = (1.0_f32, if matmul.accumulate { 1.0_f32 } else { 0.0 });
        let number = |number: &f32| std::ptr::from_ref(number).cast::<c_void>();
        let place = |matrix: DeviceMatrix| matrix.ptr as *mut c_void;
        let PreparedMatmul { descriptor, a, b, out, algorithm } = prepared;
        // SAFETY: the prepared descriptors live as long as `self`; matrices lie in memory that was allocated, as the
        // command list says; one stream uses the workspace, one matmul after the other.
        let outcome = unsafe {
            lt::matmul(
                self.handle,
                descriptor.0,
                number(&one),
                number(&beta),
                place(matmul.b),
                b.0,
                place(matmul.a),
                a.0,
                place(matmul.out),
                out.0,
                place(matmul.out),
                out.0,
                &raw const *algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                stream.0.cast(),
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
