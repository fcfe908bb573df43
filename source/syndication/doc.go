// Package syndication polls Atom and RSS feeds.
//
// A [Source] finds out where a feed keeps what its document has no room for, walks
// back through older documents to what is published, and decides for every entry by
// what the topic holds of it whether to publish it. The topic is the truth; the cursor
// saves requests. Package feedxml reads the documents.
//
// Elements that describe a document may be behind its entries. Only at its end is it
// known whether it has an older document.
package syndication
