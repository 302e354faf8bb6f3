import CSiskin

/// A list of strings in the library's form.
struct NativeStrings: Sendable {
    let handle: NativeHandle

    init(_ strings: [String]) throws(SiskinError) {
        handle = NativeHandle(try makeHandle { siskin_texts_new(&$0) }, "strings", free: { siskin_texts_free($0) })
        try handle.use { list throws(SiskinError) in
            for string in strings { try check(withUTF8(string) { siskin_texts_add(list, $0, $1) }) }
        }
    }
}
