#if canImport(SwiftUI)
import SampleModel
import Siskin
import SwiftUI

/// A chat and a search, on two tabs. An app shows it with `WindowGroup { SampleScreen(chat: url, search: url) }`.
public struct SampleScreen: View {
    private let chat: URL
    private let search: URL

    /// Creates the screen from the files of a chat model and of an embedding model.
    public init(chat: URL, search: URL) { (self.chat, self.search) = (chat, search) }

    /// Both tabs.
    public var body: some View {
        TabView {
            ChatScreen(file: chat).tabItem { Label("Chat", systemImage: "bubble.left") }
            SearchScreen(file: search).tabItem { Label("Search", systemImage: "magnifyingglass") }
        }
    }
}

struct ChatScreen: View {
    let file: URL
    @State private var lifecycle = Lifecycle()
    @State private var chat: Chat?
    @State private var shown = Chat.State()
    @State private var text = ""

    var body: some View {
        VStack {
            List(Array(shown.messages.enumerated()), id: \.offset) { _, message in
                Text(message.content).foregroundStyle(message.role == "user" ? .secondary : .primary)
            }
            if let problem = shown.problem { Text(problem).foregroundStyle(.red) }
            HStack {
                TextField("Ask something", text: $text).onSubmit(send)
                if shown.isWriting {
                    Button("Stop") { chat?.stop() }
                } else {
                    Button("Send", action: send).disabled(chat == nil)
                }
            }.padding()
        }
        .task { await open() }
    }

    private func send() {
        chat?.say(text)
        text = ""
    }

    private func open() async {
        do {
            let model = try await Model.open(file)
            try model.setPace(.full)
            let opened = try await Chat(model, following: lifecycle)
            opened.changed = { shown = $0 }
            chat = opened
        } catch {
            shown.problem = error.localizedDescription
        }
    }
}

struct SearchScreen: View {
    let file: URL
    @State private var search: Search?
    @State private var hits: [Search.Hit] = []
    @State private var text = ""
    @State private var problem: String?

    private static let notes = [
        "The ferry leaves the island at a quarter past seven.",
        "She planted three rows of beans behind the shed.",
        "Sign in, open the settings and choose a new password.",
    ]

    var body: some View {
        VStack {
            TextField("Search by meaning", text: $text).padding()
            if let problem { Text(problem).foregroundStyle(.red) }
            List(hits, id: \.text) { hit in
                HStack {
                    Text(hit.text)
                    Spacer()
                    Text(hit.score, format: .number.precision(.fractionLength(2)))
                }
            }
        }
        .task { await open() }
        // A change of the query cancels the running search.
        .task(id: text) { await find() }
    }

    private func open() async {
        do {
            let opened = try await Search(try await Model.open(file))
            try await opened.add(Self.notes)
            search = opened
        } catch {
            problem = error.localizedDescription
        }
    }

    private func find() async {
        guard let search, !text.isEmpty else { return }
        do {
            hits = try await search.find(text)
        } catch let error as SiskinError where error.isCancellation {
            return
        } catch {
            problem = error.localizedDescription
        }
    }
}
#endif
