//! Metrics under vLLM's names, which autoscalers and gateways know.

/// Our names and vLLM's, without the suffixes of histograms.
const NAMES: [(&str, &str); 17] = [
    ("siskin_requests_running", "vllm:num_requests_running"),
    ("siskin_requests_waiting", "vllm:num_requests_waiting"),
    ("siskin_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"),
    ("siskin_prefix_cache_queries_tokens_total", "vllm:prefix_cache_queries_total"),
    ("siskin_prefix_cache_hits_tokens_total", "vllm:prefix_cache_hits_total"),
    ("siskin_preemptions_total", "vllm:num_preemptions_total"),
    ("siskin_prompt_tokens_total", "vllm:prompt_tokens_total"),
    ("siskin_generation_tokens_total", "vllm:generation_tokens_total"),
    ("siskin_request_success_total", "vllm:request_success_total"),
    ("siskin_speculative_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
    ("siskin_speculative_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
    ("siskin_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
    ("siskin_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"),
    ("siskin_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"),
    ("siskin_request_queue_time_seconds", "vllm:request_queue_time_seconds"),
    ("siskin_request_prefill_time_seconds", "vllm:request_prefill_time_seconds"),
    ("siskin_request_decode_time_seconds", "vllm:request_decode_time_seconds"),
];

/// Returns those lines of a page of metrics that vLLM has as well, in its names.
pub(super) fn renamed(page: &str) -> String {
    let mut text = String::new();
    for line in page.lines() {
        if let Some(line) = renamed_line(line) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn renamed_line(line: &str) -> Option<String> {
    let start = ["# HELP ", "# TYPE "].into_iter().find(|start| line.starts_with(start)).unwrap_or("");
    let rest = &line[start.len()..];
    let end = rest.find([' ', '{']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let suffixes = ["", "_bucket", "_sum", "_count"];
    let (suffix, other) = suffixes.into_iter().find_map(|suffix| {
        let base = name.strip_suffix(suffix)?;
        let (_, other) = NAMES.iter().find(|(own, _)| *own == base)?;
        Some((suffix, other))
    })?;
    let rest = rest.replacen("{model=", "{model_name=", 1);
    Some(format!("{start}{other}{suffix}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_renamed() {
        let page = "# HELP siskin_requests_running Requests.\n# TYPE siskin_requests_running gauge\n\
            siskin_requests_running{model=\"a\",version=\"v1\"} 1\nsiskin_requests_paused{model=\"a\",version=\"v1\"} 1\n\
            siskin_time_to_first_token_seconds_bucket{model=\"a\",version=\"v1\",le=\"0.5\"} 2\n";
        let want = "# HELP vllm:num_requests_running Requests.\n# TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{model_name=\"a\",version=\"v1\"} 1\n\
            vllm:time_to_first_token_seconds_bucket{model_name=\"a\",version=\"v1\",le=\"0.5\"} 2\n";
        assert_eq!(renamed(page), want);
    }
}
