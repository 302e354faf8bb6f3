import CSiskin

extension Sampler {
    /// Greedy decoding: always the most probable token.
    public static let greedy = Sampler(temperature: 0)

    func copyBias(to sampler: OpaquePointer) throws(SiskinError) {
        for (token, bias) in logitBias { try check(siskin_sampler_add_bias(sampler, token, bias)) }
    }
}
