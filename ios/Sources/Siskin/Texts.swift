import CSiskin

/// A batch of texts in the library's form.
struct Texts: Sendable {
    let owner: Owner

    init(_ texts: [String]) throws(SiskinError) {
        owner = Owner(try made { siskin_texts_new(&$0) }, "texts", free: { siskin_texts_free($0) })
        try owner.lend { native throws(SiskinError) in
            for text in texts { try check(withText(text) { siskin_texts_add(native, $0, $1) }) }
        }
    }
}
