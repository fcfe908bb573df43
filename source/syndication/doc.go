// Package syndication polls Atom and RSS feeds.
//
// A [Source] detects how a feed keeps the entries for which its document has no room,
// reads older documents back to the last published one, and compares every entry with
// the version in the topic to decide whether to publish it. The topic is the truth; the
// cursor saves requests. Package feedxml reads the documents.
//
// Elements that describe a document may follow its entries. Only at its end is it known
// whether it has an older document.
package syndication
