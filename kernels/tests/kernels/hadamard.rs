use siskin_kernels::hadamard::*;

/// Entry (i, j) of the matrix is −1 to the power of the number of bits that i and j share.
#[test]
fn it_is_the_matrix_of_hadamard() {
    for j in 0..BLOCK {
        let mut block = [0.0; BLOCK];
        block[j] = 1.0;
        transform(&mut block);
        for (i, x) in block.into_iter().enumerate() {
            assert_eq!(x, if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 });
        }
    }
}

#[test]
fn twice_is_nothing() {
    let row: Vec<f32> = (0..130).map(|i| (i * i % 37) as f32 - 18.0).collect();
    let mut twice = row.clone();
    rotate(&mut twice);
    assert_ne!(twice[..128], row[..128]);
    rotate(&mut twice);
    assert_eq!(twice, row);
}
