#if canImport(SwiftUI)
import SampleModel
import Siskin
import SwiftUI

/// A chat and a search, on two tabs.
///
/// An app shows it with `WindowGroup { SampleView(chatModelURL: url, searchModelURL: url) }`.
public struct SampleView: View {
    private let chatModelURL: URL
    private let searchModelURL: URL

    /// Creates the view from the files of a chat model and of an embedding model.
    public init(chatModelURL: URL, searchModelURL: URL) {
        self.chatModelURL = chatModelURL
        self.searchModelURL = searchModelURL
    }

    /// Both tabs.
    public var body: some View {
        TabView {
            ChatView(modelURL: chatModelURL).tabItem { Label("Chat", systemImage: "bubble.left") }
            SearchView(modelURL: searchModelURL).tabItem { Label("Search", systemImage: "magnifyingglass") }
        }
    }
}

struct ChatView: View {
    let modelURL: URL
    @State private var lifecycle = Lifecycle()
    @State private var chat: Chat?
    @State private var text = ""
    @State private var loadingError: String?

    var body: some View {
        VStack {
            List(Array((chat?.messages ?? []).enumerated()), id: \.offset) { _, message in
                Text(message.content).foregroundStyle(message.role == .user ? .secondary : .primary)
            }
            if let error = loadingError ?? chat?.errorMessage { Text(error).foregroundStyle(.red) }
            HStack {
                TextField("Ask something", text: $text).onSubmit(send)
                if let chat, chat.isGenerating {
                    Button("Stop") { chat.cancel() }
                } else {
                    Button("Send", action: send).disabled(chat == nil)
                }
            }.padding()
        }
        .task { await load() }
    }

    private func send() {
        chat?.send(text)
        text = ""
    }

    private func load() async {
        do {
            let model = try await Model(contentsOf: modelURL)
            try model.setThrottle(.adaptive)
            chat = try await Chat(model: model, lifecycle: lifecycle)
        } catch {
            loadingError = error.localizedDescription
        }
    }
}

struct SearchView: View {
    let modelURL: URL
    @State private var search: SemanticSearch?
    @State private var results: [SemanticSearch.Result] = []
    @State private var query = ""
    @State private var errorMessage: String?

    private static let notes = [
        "The ferry leaves the island at a quarter past seven.",
        "She planted three rows of beans behind the shed.",
        "Sign in, open the settings and choose a new password.",
    ]

    var body: some View {
        VStack {
            TextField("Search by meaning", text: $query).padding()
            if let errorMessage { Text(errorMessage).foregroundStyle(.red) }
            List(results, id: \.text) { result in
                HStack {
                    Text(result.text)
                    Spacer()
                    Text(result.similarity, format: .number.precision(.fractionLength(2)))
                }
            }
        }
        .task { await load() }
        // A change of the query cancels the running search.
        .task(id: query) { await updateResults() }
    }

    private func load() async {
        do {
            let search = try await SemanticSearch(model: Model(contentsOf: modelURL))
            try await search.add(Self.notes)
            self.search = search
        } catch {
            errorMessage = error.localizedDescription
        }
    }

    private func updateResults() async {
        guard let search, !query.isEmpty else { return }
        do {
            results = try await search.results(for: query)
        } catch let error as SiskinError where error.isCancellation {
            return
        } catch {
            errorMessage = error.localizedDescription
        }
    }
}
#endif
