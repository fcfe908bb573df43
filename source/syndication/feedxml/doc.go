// Package feedxml reads documents of Atom and RSS feeds as a stream: Atom 1.0 (RFC
// 4287), 0.3 and the drafts between them, RSS 2.0, 0.9x, 1.0 and 0.90, with the
// elements of RFC 5005 (paging and archiving), RFC 6721 (tombstones), Dublin Core and
// the syndication module.
//
// A [Reader] returns one [Entry] after the other: its ID, its dates, and its own XML,
// with everything that it inherits, so that it can be read without the document.
// [Reader.Meta] describes the document; it is complete when Next has returned [io.EOF],
// because such elements may follow the entries.
//
// # Limits
//
// A reader holds one entry in memory, however large the document is. [Limits] bound the
// entry, the elements around the entries, the depth and the attributes; larger ones are
// an error that matches [ErrTooLarge]. IDs, URLs and other short texts have 8 KiB at
// most, links 1,000. The time is proportional to the size of the document, also if it
// has to be repaired. Entities that the document declares as text are expanded up to 256
// KiB; others, such as external ones, count as not defined.
//
// # Errors
//
// Errors name the line and the column, and quote the text there without the secrets of
// URLs. They match one of [ErrNotFeed], [ErrTruncated], [ErrMalformed], [ErrTrailing],
// [ErrTooLarge] and [ErrCharset], or are those of the underlying reader. None of them
// is permanent: the next request may get a correct document. Errors that do not stop
// the reading are in [Reader.Violations].
//
// A lenient reader repairs documents that are not well-formed, as feed readers for
// people do, and lists its repairs in [Reader.Faults]. Most faults cost at most the entry
// that they are in. A comment or CDATA section without an end costs all entries up to the
// next end of one, or the rest of the document; entries after the root element are not read; and text in
// an encoding that nothing names is garbled. Other readers refuse documents with faults. All readers accept
// attributes that repeat, prefixes that are not declared, and names with characters that
// XML does not allow; [Meta.Doubtful] reports those that may hide entries or IDs.
//
// # Names
//
// A name is a namespace and a local name; prefixes have no meaning. An fh:complete with
// an undeclared prefix is not a flag. Inherited declarations are part of an entry's
// body only if the entry uses them. Otherwise all entries of an archive that declares
// one prefix more would differ from those of the subscription document.
package feedxml
