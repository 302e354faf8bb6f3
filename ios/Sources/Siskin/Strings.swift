import CSiskin

/// A list of strings in the library's form.
struct NativeStrings: Sendable {
    let handle: NativeHandle

    init(_ strings: [String]) throws(SiskinError) {
        handle = NativeHandle(try makeHandle { siskin_strings_new(&$0) }, "strings", free: { siskin_strings_free($0) })
        try handle.use { list throws(SiskinError) in
            for string in strings { try check(withUTF8(string) { siskin_strings_add(list, $0, $1) }) }
        }
    }
}
