//! Slicing, gathering and repeating, and rotary position embedding.

use siskin::graph::Op;

use super::{KernelArgument, OpBackward, OpCall, Place, TapeBuilder, To, flag, whole};

pub(super) fn forward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, x: Place, out: Place) {
    let to = To { place: out, add: false };
    let (rows, columns) = (call.rows, call.columns());
    match call.node.op {
        Op::SliceColumns { start } => {
            let widths = [call.input(0).columns, start, columns, 0];
            move_columns(work, [x, out], false, [rows, columns], widths);
        }
        Op::RepeatColumns(times) => {
            let narrow = call.input(0).columns;
            let numbers = [whole(times), whole(rows), whole(narrow)];
            work.tape.cells(
                "repeat",
                rows,
                columns,
                &[&[x, out].map(KernelArgument::Place)[..], &numbers].concat(),
            );
        }
        Op::SelectOutputs => {
            let wanted = &call.texts().wanted;
            let places =
                work.sheet.whole(&call.name("wanted"), || wanted.iter().map(|&row| row as i32).collect());
            move_rows(work, x, places, to, [rows, columns]);
        }
        _ => rope(work, call, x, to, false),
    }
}

fn move_columns(
    work: &mut TapeBuilder<'_>,
    places: [Place; 2],
    add: bool,
    [rows, columns]: [usize; 2],
    widths: [usize; 4],
) {
    let numbers = [[rows, columns].map(whole).to_vec(), widths.map(whole).to_vec()].concat();
    let arguments = [&places.map(KernelArgument::Place)[..], &[flag(add)], &numbers].concat();
    work.tape.cells("move_columns", rows, columns, &arguments);
}

fn move_rows(work: &mut TapeBuilder<'_>, from: Place, places: Place, to: To, [rows, columns]: [usize; 2]) {
    let arguments =
        [&[from, places].map(KernelArgument::Place)[..], &to.arguments(), &[whole(rows), whole(columns)]]
            .concat();
    work.tape.cells("move_rows", rows, columns, &arguments);
}

/// Rotates by the angles of each row: tables of cosines and sines, and the table row of each row.
fn rope(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, x: Place, to: To, back: bool) {
    let Op::Rope { rope: index, head_size } = call.node.op else { return };
    let (rope, texts) = (&call.program.ropes[index], call.texts());
    let pairs = rope.frequencies.len();
    let longest = texts.spans.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    // If angles do not depend on the sequence length, tables are per position, otherwise per row.
    let by_row = rope.stretch.is_some();
    let turns = work.sheet.floats(&call.name(&format!("turns {index}")), || {
        let of_rows = texts.rows.iter().map(|row| (row.position, texts.spans[row.text].len()));
        let places: Vec<(usize, usize)> = if by_row {
            of_rows.collect()
        } else {
            (0..longest).map(|position| (position, longest)).collect()
        };
        let mut all = vec![0.0; places.len() * 2 * pairs];
        for ((position, length), out) in places.into_iter().zip(all.chunks_mut((2 * pairs).max(1))) {
            siskin::angles(rope, position, length, out);
        }
        all
    });
    let name = if by_row { "rows" } else { "turns by position" };
    let turn_of = work.sheet.whole(&call.name(name), || {
        let of_row =
            |(number, row): (usize, &crate::batch::BatchRow)| if by_row { number } else { row.position };
        texts.rows.iter().enumerate().map(|row| of_row(row) as i32).collect()
    });
    let places = [x, turns, turn_of, to.place].map(KernelArgument::Place);
    let numbers = [call.rows, call.columns(), head_size, pairs].map(whole);
    let arguments = [&places[..], &[flag(back), flag(to.add)], &numbers].concat();
    work.tape.cells("rope", call.rows, call.columns(), &arguments);
}

pub(super) fn backward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let Some(to) = back.to[0] else { return };
    let (rows, columns, wide) = (call.rows, call.columns(), call.input(0).columns);
    match call.node.op {
        Op::SliceColumns { start } => {
            if !to.add {
                work.tape.clear(to.place, rows * wide * work.tape.precision.bytes());
            }
            move_columns(work, [back.gradient, to.place], true, [rows, columns], [columns, 0, wide, start]);
        }
        Op::RepeatColumns(times) => {
            let numbers = [whole(times), whole(rows), whole(wide)];
            let arguments = [&[KernelArgument::Place(back.gradient)], &to.arguments()[..], &numbers].concat();
            work.tape.cells("repeat_back", rows, wide, &arguments);
        }
        Op::SelectOutputs => {
            let texts = call.texts();
            let places = work.sheet.whole(&call.name("places of wanted"), || {
                let mut places = vec![-1; texts.rows.len()];
                texts.wanted.iter().enumerate().for_each(|(place, &row)| places[row] = place as i32);
                places
            });
            move_rows(work, back.gradient, places, to, [texts.rows.len(), columns]);
        }
        _ => rope(work, call, back.gradient, to, true),
    }
}
