import Foundation

/// A message of a conversation.
public struct Message: Sendable, Hashable, Codable {
    /// The role of the author.
    public var role: Role
    /// The text.
    public var content: String

    /// Creates a message.
    public init(role: Role, content: String) { (self.role, self.content) = (role, content) }

    /// The role of an author. Chat templates may define more than the ones named here.
    public struct Role: RawRepresentable, ExpressibleByStringLiteral, Sendable, Hashable, Codable {
        /// Instructions.
        public static let system = Role(rawValue: "system")
        /// The user.
        public static let user = Role(rawValue: "user")
        /// The model.
        public static let assistant = Role(rawValue: "assistant")

        /// The name of the role in chat templates.
        public let rawValue: String
        /// Creates a role from its name in chat templates.
        public init(rawValue: String) { self.rawValue = rawValue }
        /// Creates a role from its name in chat templates.
        public init(stringLiteral value: String) { rawValue = value }
    }

    static func json(_ messages: [Message]) throws(SiskinError) -> String {
        do { return String(decoding: try JSONEncoder().encode(messages), as: UTF8.self) } catch {
            throw SiskinError(.argument, location: "messages", message: "\(error)")
        }
    }
}
