//! Curves as SVG.

use std::fmt::Write;

use super::Points;
use super::html::escape;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
/// The margins: left, for axis labels; top and right; bottom, for axis labels.
const LEFT_MARGIN: f64 = 64.0;
const EDGE: f64 = 12.0;
const BOTTOM_MARGIN: f64 = 26.0;
/// The maximum number of points of a curve; longer ones are averaged in groups.
const MAX_POINTS: usize = 4000;
/// The colors of the first curves.
const COLORS: [&str; 3] = ["#2563eb", "#dc2626", "#059669"];

/// Draws some curves with common axes; empty if there are no points.
pub(super) fn chart(title: &str, curves: &[(&str, &Points)]) -> String {
    let thinned: Vec<(&str, Points)> =
        curves.iter().map(|(name, points)| (*name, downsample(points))).collect();
    let all = || thinned.iter().flat_map(|(_, points)| points);
    let Some(first) = all().next() else { return String::new() };
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        all().map(of).fold([of(first); 2], |[min, max], x| [min.min(x), max.max(x)])
    };
    let (steps, numbers) = (bounds(|point| point.0), padded(bounds(|point| point.1)));
    let x = |step: f64| {
        LEFT_MARGIN + (step - steps[0]) / (steps[1] - steps[0]).max(1e-12) * (WIDTH - LEFT_MARGIN - EDGE)
    };
    let y = |number: f64| {
        HEIGHT
            - BOTTOM_MARGIN
            - (number - numbers[0]) / (numbers[1] - numbers[0]) * (HEIGHT - BOTTOM_MARGIN - EDGE)
    };
    let mut out =
        format!("<h2>{}</h2>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n", escape(title));
    for number in ticks(numbers, 5) {
        let at = y(number);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT_MARGIN}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - EDGE,
            LEFT_MARGIN - 6.0,
            at + 4.0,
            format_number(number)
        );
    }
    for step in ticks(steps, 6) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(step),
            HEIGHT - 8.0,
            format_number(step)
        );
    }
    for ((name, points), color) in thinned.iter().zip(COLORS.iter().cycle()) {
        let places: Vec<String> =
            points.iter().map(|(step, number)| format!("{:.1},{:.1}", x(*step), y(*number))).collect();
        let name = escape(name);
        match &places[..] {
            [] => {}
            [one] => {
                let (cx, cy) = one.split_once(',').unwrap_or(("0", "0"));
                let _ = writeln!(
                    out,
                    "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"3\" fill=\"{color}\"><title>{name}</title></circle>"
                );
            }
            _ => {
                let places = places.join(" ");
                let _ = writeln!(
                    out,
                    "<polyline stroke=\"{color}\" points=\"{places}\"><title>{name}</title></polyline>"
                );
            }
        }
    }
    out.push_str("</svg>\n<p class=\"legend\">");
    for ((name, points), color) in curves.iter().zip(COLORS.iter().cycle()) {
        if let Some((_, last)) = points.last() {
            let _ = write!(
                out,
                "<span style=\"color:{color}\">{} {}</span> ",
                escape(name),
                format_number(*last)
            );
        }
    }
    out.push_str("</p>\n");
    out
}

/// Reduces a curve to a displayable number of points.
fn downsample(points: &Points) -> Points {
    let each = points.len().div_ceil(MAX_POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let sum = part.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / part.len() as f64, sum.1 / part.len() as f64)
    };
    if each == 1 { points.clone() } else { points.chunks(each).map(mean).collect() }
}

/// Adds padding to bounds.
fn padded([min, max]: [f64; 2]) -> [f64; 2] {
    let pad = match max - min {
        width if width > 0.0 => 0.04 * width,
        _ => 0.5 * min.abs().max(1e-9),
    };
    [min - pad, max + pad]
}

/// Returns about `count` round tick values within bounds.
fn ticks([min, max]: [f64; 2], count: usize) -> Vec<f64> {
    let width = (max - min) / count as f64;
    if !(width > 0.0 && width.is_finite()) {
        return vec![min];
    }
    let power = 10.0_f64.powf(width.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= width);
    let step = step.unwrap_or(width);
    let first = (min / step).ceil();
    (0..=2 * count).map(|index| (first + index as f64) * step).take_while(|tick| *tick <= max).collect()
}

/// Formats a number with few digits.
pub(super) fn format_number(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if number == 0.0 => "0".to_owned(),
        _ if (1e-3..1e6).contains(&size) => {
            let digits = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
            let text = format!("{number:.digits$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
        _ => format!("{number:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(ticks([0.0, 10.0], 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks([3.3, 3.3], 5), [3.3]);
        assert!(ticks([-0.013, 0.052], 5).contains(&0.0));
    }

    #[test]
    fn labels_have_few_digits() {
        let cases = [(0.0, "0"), (1.0, "1"), (1234.6, "1235"), (0.012346, "0.01235"), (6e-4, "6.00e-4")];
        for (number, want) in cases {
            assert_eq!(format_number(number), want);
        }
    }

    #[test]
    fn long_curves_are_downsampled_to_means() {
        let long: Points = (0..10_000).map(|step| (f64::from(step), 1.0)).collect();
        let thinned = downsample(&long);
        assert!(thinned.len() <= MAX_POINTS && thinned.len() > MAX_POINTS / 2, "{}", thinned.len());
        assert!(thinned.iter().all(|point| point.1 == 1.0));
        assert_eq!(chart("nothing", &[("a", &Points::new())]), "");
    }
}
