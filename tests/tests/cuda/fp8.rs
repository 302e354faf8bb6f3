//! fp8 matmuls.

use siskin_device::{CommandList, Device as _, Fp8Format, GridSize, KernelArgument, Precision};
use siskin_tests::cuda::decode_fp8;
use siskin_tests::extent::cases;
use siskin_tests::gradients::load;
use siskin_trainer::cuda::{Objective, RunnerBuilder};
use siskin_trainer::loss::CrossEntropy;
use siskin_trainer::{Gradients, Parameters, Recompute, Runner, TrainingObjective};

use super::common::{device, numbers, targets};

/// Rounds to nearest, ties to even, by exhaustive search.
fn nearest(range: Fp8Format, x: f32) -> f32 {
    let all = (0..=0x7f_u8).filter(|byte| decode_fp8(range, *byte).is_finite());
    let apart = |byte: &u8| (decode_fp8(range, *byte) - x.abs()).abs();
    let best = all.min_by(|a, b| apart(a).total_cmp(&apart(b)).then((a % 2).cmp(&(b % 2)))).unwrap();
    decode_fp8(range, best).copysign(x)
}

/// Checks all fp8 values, the midpoints between neighbors, and values out of range.
#[test]
fn values_are_rounded_to_the_nearest_fp8() {
    for (far, range) in [Fp8Format::E4M3, Fp8Format::E5M2].into_iter().enumerate() {
        let Some(mut device) = device() else { return };
        let mut list: Vec<f32> =
            (0..=0xff_u8).map(|byte| decode_fp8(range, byte)).filter(|x| x.is_finite()).collect();
        list.sort_by(f32::total_cmp);
        let halfway: Vec<f32> = list.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        let beyond = [1e5, -1e5, 449.0, 1e-9, -1e-9];
        list.extend(halfway.into_iter().chain(beyond).chain(numbers(200, 4).into_iter().map(|x| x * 700.0)));
        let (rows, columns) = (list.len().div_ceil(10), 10);
        list.resize(rows * columns, 0.0);
        let bytes: Vec<u8> = list.iter().flat_map(|x| x.to_le_bytes()).collect();
        let turned_stride = rows.next_multiple_of(16);
        let [from, scale, plain, turned, parts] = [bytes.len(), 4, list.len(), columns * turned_stride, 4096]
            .map(|size| device.allocate(size).unwrap());
        device.write(from, &bytes).unwrap();
        device.write(scale, &1.0_f32.to_le_bytes()).unwrap();
        let whole = |number: usize| KernelArgument::Int(number as i32);
        let arguments = [
            &[KernelArgument::Ptr(from), whole(rows), whole(columns), whole(columns)][..],
            &[
                KernelArgument::Ptr(scale),
                whole(far),
                KernelArgument::Ptr(plain),
                KernelArgument::Ptr(turned),
            ],
            &[whole(turned_stride), KernelArgument::Ptr(parts)],
        ];
        let mut commands = CommandList::new(Precision::F32);
        let grid = GridSize::new(1, turned_stride.div_ceil(32), 1);
        commands.kernel("to_fp8_f32", grid, 256, 0, &arguments.concat());
        device.run(&commands).unwrap();
        let (mut got, mut columns_of) = (vec![0; list.len()], vec![1; columns * turned_stride]);
        device.read(plain, &mut got).unwrap();
        device.read(turned, &mut columns_of).unwrap();
        for (index, (byte, x)) in got.iter().zip(&list).enumerate() {
            let (own, want) = (decode_fp8(range, *byte), nearest(range, *x));
            assert!(own == want, "{range:?}: {x} became {own}, not {want}");
            let (row, column) = (index / columns, index % columns);
            assert_eq!(columns_of[column * turned_stride + row], *byte, "columns as rows");
        }
        for column in 0..columns {
            let rest = &columns_of[column * turned_stride + rows..(column + 1) * turned_stride];
            assert!(rest.iter().all(|byte| *byte == 0), "columns end with zeros");
        }
    }
}

/// fp8 results are close to f32 results, and not equal.
#[test]
fn fp8_gradients_are_close_to_f32() {
    let mut report = String::new();
    let names = ["gpt2", "llama", "bert", "t5"];
    for name in cases("models", names, |name| *name == "t5") {
        let case = load(name);
        let parameters = Parameters::<f32>::read(&case.program.graph.weights, &case.file).unwrap();
        let output = case.program.graph.values[case.program.graph.output];
        let targets = targets(case.program.row_count(case.program.graph.output, &case.batch), output.columns);
        let loss = CrossEntropy::default();
        let mut cpu = Runner::new(case.program.clone(), Recompute::None, |_| true).unwrap();
        let mut want = Gradients::zeros(&parameters, |_| true);
        let goal = TrainingObjective { loss: &loss, targets: &targets, scale: 0.25 };
        let cpu_sum = cpu.run(&parameters, &case.batch, goal, &mut want).unwrap();
        let mut all = Vec::new();
        for eights in [false, true] {
            let (Some(device), program) = (device(), case.program.clone()) else { return };
            let mut runner = RunnerBuilder {
                precision: Precision::Bf16,
                fp8: eights,
                ..RunnerBuilder::new(program, &parameters)
            }
            .build(Box::new(device))
            .unwrap();
            let mut own = Gradients::zeros(&parameters, |_| true);
            runner.run(&case.batch, &Objective::default(), &targets, 0.25).unwrap();
            let sum = runner.take_sum().unwrap();
            runner.gradients(&mut own).unwrap();
            assert_eq!(sum.weight, cpu_sum.weight, "{name}: the first batch counts once");
            let length = |of: &dyn Fn(&f32, &f32) -> f32| {
                let pairs = own.list.iter().flatten().flatten().zip(want.list.iter().flatten().flatten());
                pairs.map(|(own, want)| f64::from(of(own, want)).powi(2)).sum::<f64>().sqrt()
            };
            let error = length(&|own, want| own - want) / length(&|_, want| *want);
            let apart = (sum.mean() / cpu_sum.mean() - 1.0).abs();
            let limits = if eights { [0.25, 0.03] } else { [0.05, 0.01] };
            if error.is_nan() || error > limits[0] || apart > limits[1] {
                report += &format!("{name}, eights {eights}: {error:.1e}, {apart:.1e}\n");
            }
            all.push(own);
        }
        assert!(all[0] != all[1], "{name}: nothing has eight bits");
    }
    assert!(report.is_empty(), "{report}");
}
