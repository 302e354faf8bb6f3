// A conversation in the terminal: Chat MODEL
import Foundation
import Siskin

guard CommandLine.arguments.count > 1 else {
    print("usage: Chat MODEL")
    exit(2)
}
let model = try await Model(contentsOf: URL(fileURLWithPath: CommandLine.arguments[1]))
let session = try await Session(model: model)
while let line = readLine() {
    for try await chunk in session.chat(line) {
        FileHandle.standardOutput.write(Data(chunk.text.utf8))
    }
    print()
}
