package feedxml

import (
	"bytes"
	"io"

	"github.com/feedbridge/feedbridge/internal/jsonpage"
)

// Reader reads one document. It is for one goroutine.
type Reader struct {
	rootReader
	json  *jsonReader // nil if the document is XML
	begun bool
	err   error // the error that Next has returned and returns from then on
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
	words := &vocabulary{violationLog: &violationLog{page: opts.URL}}
	reader := &Reader{}
	reader.vocabulary = words
	reader.tokenizer = tokenizer{
		opts: opts, exclusions: newExclusions(opts.HashWithout), in: input{r: r, repair: opts.Lenient, report: reader.recordCharacters},
		scan: scanner{in: &reader.in, maxAttributes: mostAttributes, interrupted: opts.Interrupted},
	}
	reader.about = metaReader{vocabulary: words, meta: Meta{URL: opts.URL}}
	reader.entries = entryReader{vocabulary: words, identity: opts.Identity, exclusions: &reader.exclusions}
	return reader
}

// Meta returns the description of the document as read so far. Its format is known
// after the first call of Next, the rest when Next has returned [io.EOF].
func (r *Reader) Meta() *Meta { return &r.about.meta }

// Faults returns the repairs so far, if the reader is lenient.
func (r *Reader) Faults() *Faults { return &r.faults }

// Next returns the next entry. It returns [io.EOF] once the root element has ended and
// nothing follows it. Otherwise it returns an error of this package or of the
// underlying reader, and returns it again at the next call.
func (r *Reader) Next() (Entry, error) {
	if r.err != nil {
		return Entry{}, r.err
	}
	next, err := r.nextEntry()
	r.err = r.describeError(err)
	meta, dates := &r.about.meta, &r.entries.dates
	meta.Doubtful = r.doubtful
	meta.Order, meta.PublishedOrder = dates.updated.dateOrder(), dates.published.mainOrder()
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
	for len(r.open) > 0 && r.scan.stopped == nil {
		if e, found, err := r.readNext(); found || err != nil {
			return e, err
		}
	}
	return Entry{}, r.finishDocument()
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

// isJSON reports whether the document begins with an object. It skips the blanks before it.
func (r *Reader) isJSON() bool {
	for {
		b := r.in.unreadBytes()
		rest := bytes.TrimLeft(b, " \t\r\n")
		if len(rest) > 0 {
			return rest[0] == '{'
		}
		if len(b) > r.opts.Limits.Head || r.in.readMore(0, r.opts.Limits.Head) != nil {
			return false
		}
	}
}

// openJSON begins to read the document as a JSON Feed.
func (r *Reader) openJSON() {
	rest := io.MultiReader(bytes.NewReader(r.in.buf[r.in.start:r.in.filled]), r.in.r)
	r.format, r.about.meta.Format = JSON, JSON
	r.json = &jsonReader{&r.entries, &r.opts, &r.faults, &r.about.meta, jsonpage.NewReader(rest, jsonpage.Options{List: "items", Item: r.opts.Limits.Entry, Head: r.opts.Limits.Head})}
}
