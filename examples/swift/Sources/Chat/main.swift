// A conversation in the terminal: Chat MODEL
import Foundation
import Siskin

let model = try await Model(contentsOf: URL(fileURLWithPath: CommandLine.arguments[1]))
let session = try await Session(model: model)
while let line = readLine() {
    for try await chunk in session.chat(line) {
        print(chunk.text, terminator: "")
    }
    print()
}
