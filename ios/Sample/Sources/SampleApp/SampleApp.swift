// Runs the sample on a Mac: `swift run SampleApp CHAT.siskin SEARCH.siskin`.
#if canImport(SwiftUI)
import Sample
import SwiftUI

@main
struct SampleApp: App {
    var body: some Scene {
        WindowGroup {
            if CommandLine.arguments.count == 3 {
                SampleView(
                    chatModelURL: URL(fileURLWithPath: CommandLine.arguments[1]),
                    searchModelURL: URL(fileURLWithPath: CommandLine.arguments[2])
                )
            } else {
                Text("Pass two arguments: the files of a chat model and of an embedding model.").padding()
            }
        }
    }
}
#else
@main
struct SampleApp {
    static func main() {
        print("SampleApp needs SwiftUI: run it on a Mac")
    }
}
#endif
