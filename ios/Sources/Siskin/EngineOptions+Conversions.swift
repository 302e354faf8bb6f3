import CSiskin

extension ServedModelOptions {
    func copyDraftModel(to options: OpaquePointer) throws(SiskinError) {
        guard let draftModel else { return }
        try draftModel.handle.use { model throws(SiskinError) in
            try check(siskin_served_model_options_set_draft_model(options, model))
        }
    }
}

extension RequestOptions {
    func copyStructuredOutput(to options: OpaquePointer) throws(SiskinError) {
        let (kind, definition) = try StructuredOutput.native(structuredOutput)
        try check(withUTF8(definition) { siskin_request_options_set_structured_output(options, kind, $0, $1) })
    }
}
