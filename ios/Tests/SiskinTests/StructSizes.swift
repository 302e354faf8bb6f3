import CSiskin

/// The structs that the library fills in, and their sizes in Swift.
let structSizes: [(name: String, size: Int)] = [
    ("siskin_memory_usage", MemoryLayout<siskin_memory_usage>.stride),
    ("siskin_model_info", MemoryLayout<siskin_model_info>.stride),
    ("siskin_throttle_stats", MemoryLayout<siskin_throttle_stats>.stride),
    ("siskin_text_chunk", MemoryLayout<siskin_text_chunk>.stride),
    ("siskin_stats", MemoryLayout<siskin_stats>.stride),
    ("siskin_prediction", MemoryLayout<siskin_prediction>.stride),
    ("siskin_generated_text", MemoryLayout<siskin_generated_text>.stride),
    ("siskin_segment", MemoryLayout<siskin_segment>.stride),
]
