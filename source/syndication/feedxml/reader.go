package feedxml

import (
	"encoding/xml"
	"io"
)

// Reader reads one document. It is for one goroutine.
type Reader struct {
	tokenizer
	faultLog
	*vocabulary
	entities entityTable
	about    metaReader
	entries  entryReader

	begun bool
	open  []container // containers around the unread bytes, the root first
	root  []container // the root, if it is a container; a lenient reader may reopen it
	large *largeEntry // the entry in whose place the unread one is read; nil for none
	named bool        // the document has the elements that its format requires, such as a channel
	head  int         // bytes of elements that are not entries
	err   error       // the error that Next has returned and returns from then on
	// rootRepaired is one more than the offset of the root's start tag, if that was
	// repaired. htmlDoctype reports that the document has the document type declaration
	// of HTML.
	rootRepaired int64
	htmlDoctype  bool
	// rootEnd is the offset of the last end tag of the root, if the document ends within markup.
	rootEnd int64
	json    *jsonReader // nil if the document is XML
}

// container is an element whose children the reader reads one by one.
type container struct {
	name    string // as written
	scope   scope
	inherit inheritance
}

// NewReader returns a Reader of the document in r.
func NewReader(r io.Reader, opts Options) *Reader {
	orDefault := func(limit *int, value int) {
		if *limit == 0 {
			*limit = value
		}
	}
	orDefault(&opts.Limits.Entry, 8<<20)
	orDefault(&opts.Limits.Head, 8<<20)
	orDefault(&opts.Limits.Depth, 256)
	orDefault(&opts.Limits.Attributes, 256)
	words := &vocabulary{violationLog: &violationLog{page: opts.URL}}
	reader := &Reader{
		tokenizer:  tokenizer{opts: opts, in: input{r: r, repair: opts.Lenient}, scan: scanner{maxAttributes: opts.Limits.Attributes}},
		vocabulary: words,
		about:      metaReader{vocabulary: words, meta: Meta{URL: opts.URL}},
		entries:    entryReader{vocabulary: words, identity: opts.Identity},
	}
	reader.exclusions = newExclusions(opts.HashWithout)
	reader.entries.exclusions = &reader.exclusions
	reader.at = &reader.tokenizer
	reader.scan.in, reader.scan.interrupted = &reader.in, opts.Interrupted
	reader.in.report = reader.recordCharacters
	return reader
}

// Meta returns the description of the document as read so far. Its format is known
// after the first call of Next, the rest when Next has returned [io.EOF].
func (r *Reader) Meta() *Meta { return &r.about.meta }

// Faults returns the repairs so far, if the reader is lenient.
func (r *Reader) Faults() *Faults { return &r.faults }

// Unmatched returns the names of [Options.HashWithout] that no element of an entry had so far.
func (r *Reader) Unmatched() (names []xml.Name) {
	for i, matched := range r.exclusions.matched {
		if !matched {
			names = append(names, r.opts.HashWithout[i])
		}
	}
	return names
}

// Next returns the next entry. It returns [io.EOF] once the root element has ended and
// nothing follows it. Otherwise it returns an error of this package or of the
// underlying reader, and returns it again at the next call.
func (r *Reader) Next() (Entry, error) {
	if r.err != nil {
		return Entry{}, r.err
	}
	next, err := r.nextEntry()
	r.err = r.describeError(err)
	if r.scan.stopped != nil {
		next, r.err = Entry{}, r.scan.stopped
	}
	return next, r.err
}

func (r *Reader) nextEntry() (Entry, error) {
	if !r.begun {
		r.begun = true
		if err := r.detectCharset(); err != nil {
			return Entry{}, err
		}
		if r.isJSON() {
			r.openJSON()
		} else if e, found, err := r.readRoot(); found || err != nil {
			return e, err
		}
	}
	if r.json != nil {
		return r.json.next()
	}
	for {
		for len(r.open) > 0 && r.scan.stopped == nil {
			if e, found, err := r.readNext(); found || err != nil {
				return e, err
			}
		}
		err := r.finishDocument()
		if !r.reopenRoot(err) {
			return Entry{}, err
		}
	}
}

// finishDocument reads the rest of the document behind the root element.
func (r *Reader) finishDocument() error {
	if !r.named && r.opts.Lenient && r.entries.count > 0 {
		r.named = true
		r.recordRepair(ErrMalformed, 0, "the document has no channel")
	}
	if !r.named && r.format == Atom {
		return noFeedError(&r.tokenizer, "", "feed")
	}
	if !r.named {
		return r.errorAt(ErrNotFeed, 0, "the document has no channel")
	}
	return r.readTrailer()
}

// Detect returns the format of a document, by its root element. Of the options only URL
// and ContentType matter. It reads no further than necessary: mostly a few thousand
// bytes, and 1 MiB at most. If the document ends before the root's start tag does, the
// error matches [ErrTruncated]; if it is no feed, it matches [ErrNotFeed].
func Detect(document io.Reader, opts Options) (Format, error) {
	opts.Limits, opts.Lenient = Limits{Head: 1 << 20, Entry: 1 << 20}, true
	r := NewReader(document, opts)
	err := r.detectCharset()
	if err == nil && r.isJSON() {
		r.openJSON()
		if err := r.json.detect(); err != nil {
			return "", err
		}
	} else if err == nil {
		_, _, err = r.readRoot()
	}
	if r.format != "" {
		return r.format, nil
	}
	return "", r.describeError(err)
}
