// Package page parses pages of datareplication feeds. A page is an HTTP response with a
// multipart body. Each part of the body is one entity. Link fields name the page itself and
// its neighbours.
//
// [ParseHeader] reads the fields of the response, a [Reader] the parts of the body, and
// [NewEntity] makes an entity of a part. This package sends no requests.
//
// Fields are read as section 1.5 of the specification of the datareplication format
// describes, and bodies as section 1.6 describes. The numbers of cases in tests are those of
// the conformance cases in section 4.
//
// # Limits
//
// The header of a part has at most 64 KiB, and a part at most the number of bytes that the
// Reader is created with. A delimiter is followed by at most 1,024 blanks. While a part is read, it takes at
// most twice its size in memory, and the Reader a buffer of 64 KiB besides. Reader.Reserve
// bounds the memory of many Readers together.
//
// # Errors
//
// A page that breaks the specification gives an error that matches [feed.ErrPermanent] and
// [feed.Violation], with one of the kinds that this package declares, the URL of the page
// and the byte. A breach that leaves no doubt about the content is returned as a violation,
// together with the result. A body that ends before its closing delimiter gives an error that
// matches [ErrTruncated]: the page is not complete, and another request may get all of it.
package page
