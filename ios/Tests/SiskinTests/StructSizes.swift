import CSiskin

/// The structs that the library fills in, and their sizes in Swift.
let structSizes: [(name: String, size: Int)] = [
    ("siskin_memory", MemoryLayout<siskin_memory>.stride),
    ("siskin_model_info", MemoryLayout<siskin_model_info>.stride),
    ("siskin_pace_stats", MemoryLayout<siskin_pace_stats>.stride),
    ("siskin_piece", MemoryLayout<siskin_piece>.stride),
    ("siskin_stats", MemoryLayout<siskin_stats>.stride),
    ("siskin_found", MemoryLayout<siskin_found>.stride),
    ("siskin_written", MemoryLayout<siskin_written>.stride),
    ("siskin_segment", MemoryLayout<siskin_segment>.stride),
]
