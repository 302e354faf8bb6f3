//! Events aggregated by operation.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::{Event, ProfiledThread};

/// The events of an operation, or of other work of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProfileRow {
    /// The operation and its phase.
    pub name: String,
    /// The number of calls.
    pub calls: usize,
    /// The total duration.
    pub milliseconds: f64,
    /// The fraction of the total duration of all rows.
    pub share: f64,
    /// GFLOP/s; zero if FLOPs are not counted.
    pub gflop_per_second: f64,
}

/// A row before all are known.
#[derive(Default)]
struct OperationTotal {
    row: ProfileRow,
    flops: f64,
}

impl ProfileRow {
    /// Aggregates events into rows, the longest first. Whole steps, which contain others, and other threads are
    /// omitted.
    pub fn of(events: &[Event]) -> Vec<Self> {
        let mut rows: BTreeMap<String, OperationTotal> = BTreeMap::new();
        let of_steps = |event: &&Event| event.worker == ProfiledThread::Steps && event.name != super::STEP;
        for event in events.iter().filter(of_steps) {
            let name = match &event.node {
                Some(node) => format!("{} {}", node.op, node.phase),
                None => event.name.clone(),
            };
            let OperationTotal { row, flops } = rows.entry(name.clone()).or_default();
            row.name = name;
            row.calls += 1;
            row.milliseconds += event.length.as_secs_f64() * 1e3;
            *flops += event.node.as_ref().map_or(0.0, |node| node.flops);
        }
        let total: f64 = rows.values().map(|total| total.row.milliseconds).sum();
        let finish = |OperationTotal { mut row, flops }| {
            row.share = row.milliseconds / total.max(1e-9);
            row.gflop_per_second = flops / row.milliseconds.max(1e-9) / 1e6;
            row
        };
        let mut rows: Vec<Self> = rows.into_values().map(finish).collect();
        rows.sort_by(|one, other| other.milliseconds.total_cmp(&one.milliseconds));
        rows
    }
}

/// Formats rows as a text table.
pub fn text(rows: &[ProfileRow]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("operation".len());
    let mut out =
        format!("{:<width$}  {:>7}  {:>10}  {:>6}  {:>8}\n", "operation", "calls", "ms", "%", "GFLOP/s");
    for ProfileRow { name, calls, milliseconds, share, gflop_per_second } in rows {
        let rate = match *gflop_per_second > 0.0 {
            true => format!("{gflop_per_second:.2}"),
            false => String::new(),
        };
        let percent = 100.0 * share;
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:<width$}  {calls:>7}  {milliseconds:>10.2}  {percent:>6.2}  {rate:>8}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::profile::NodeWork;

    #[test]
    fn rows_sum_the_events_of_an_operation() {
        let event = |name: &str, op: Option<&str>, worker, milliseconds| Event {
            name: name.to_owned(),
            worker,
            begin: Duration::ZERO,
            length: Duration::from_millis(milliseconds),
            node: op.map(|op| NodeWork {
                op: op.to_owned(),
                phase: "forward",
                rows: 1,
                columns: 1,
                flops: 3e6,
            }),
        };
        let events = [
            event("000.Linear.a", Some("Linear"), ProfiledThread::Steps, 2),
            event("001.Linear.b", Some("Linear"), ProfiledThread::Steps, 1),
            event("optimizer", None, ProfiledThread::Steps, 9),
            event(crate::profile::STEP, None, ProfiledThread::Steps, 50),
            event("batch", None, ProfiledThread::Batches, 70),
        ];
        let rows = ProfileRow::of(&events);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["optimizer", "Linear forward"]);
        assert_eq!((rows[1].calls, rows[1].milliseconds, rows[1].share), (2, 3.0, 0.25));
        assert!((rows[1].gflop_per_second - 2.0).abs() < 1e-9 && rows[0].gflop_per_second == 0.0);
        let text = text(&rows);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.len() >= 40), "{text}");
    }
}
