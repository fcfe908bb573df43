// Package jsonpage reads JSON documents that have a list of items, as a stream: one item after the other, whatever
// the size of the document. The list is the document itself, as a batch of CloudEvents is, or a member of its
// object, as in a JSON Feed.
//
// A reader holds one item in memory, and the other members of the object. Errors name the line and the column, and
// match one of ErrNotPage, ErrTruncated, ErrMalformed and ErrTooLarge, or are those of the underlying reader.
package jsonpage

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"unicode/utf8"
)

// The errors that end the reading of a document.
var (
	// ErrNotPage reports that the document has another form.
	ErrNotPage = errors.New("it is JSON of another form")
	// ErrTruncated reports that the document breaks off. All items before that are whole.
	ErrTruncated = fmt.Errorf("the document breaks off: %w", io.ErrUnexpectedEOF)
	// ErrMalformed reports that the document is not JSON.
	ErrMalformed = errors.New("the document is not JSON")
	// ErrTooLarge reports that members of the object, or the depth, are above their limits.
	ErrTooLarge = errors.New("the document is above a limit that no key changes; report this to the provider")
)

// mostDepth is the maximum depth of nested values.
const mostDepth = 1000

// Options configure how a document is read.
type Options struct {
	// List is the name of the member that has the items; "" if the document is the list.
	List string
	// Item is the maximum size of an item in bytes. Of a larger one, the reader returns the beginning.
	Item int
	// Head is the maximum total size of the other members, in bytes.
	Head int
}

// Item is an item of a document.
type Item struct {
	// Raw is the item byte for byte, without the blanks around it; its beginning if Length is not 0.
	Raw []byte
	// Length is the length of the item in bytes if it is above the limit; else 0.
	Length int64
	// Sum is the SHA-256 of the whole item, and Offset is the position of its first byte in the document.
	Sum    [sha256.Size]byte
	Offset int64
	// Err reports that the item is not valid JSON, although it ends where its brackets do. It matches ErrMalformed.
	Err error
}

// Members returns the members of an object, and the names that it has twice. Of such a name the last one counts. It
// returns those that are whole if the object is cut, and nil if raw is no object.
func Members(raw []byte) (members map[string]json.RawMessage, repeated []string) {
	in := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return nil, nil
	}
	members = map[string]json.RawMessage{}
	for in.More() {
		token, err := in.Token()
		name, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || in.Decode(&value) != nil {
			break
		}
		if _, had := members[name]; had {
			repeated = append(repeated, name)
		}
		members[name] = value
	}
	return members, repeated
}

// escapes finds pairs of surrogates, halves of them, other escapes, and bytes that are not UTF-8.
var escapes = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2}|\\.|\x{FFFD}`)

// MarkInvalid writes half a surrogate pair as %uD800, and a byte that is not UTF-8 as %FF, and returns their number. A
// decoder makes U+FFFD of all of them, and so one ID of two. Without any it returns raw.
func MarkInvalid(raw []byte) (marked []byte, n int) {
	if utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\ud`)) && !bytes.Contains(raw, []byte(`\uD`)) {
		return raw, 0
	}
	marked = escapes.ReplaceAllFunc(raw, func(b []byte) []byte {
		switch len(b) {
		case len(`\ud800`):
			n++
			return append([]byte("%u"), bytes.ToUpper(b[2:])...)
		case 1:
			n++
			return fmt.Appendf(nil, "%%%02X", b[0])
		}
		return b // including a U+FFFD that was written
	})
	return marked, n
}

// Reader reads one document. It is for one goroutine.
type Reader struct {
	in    *bufio.Reader
	opts  Options
	state state
	err   error // that Next has returned, and returns from then on

	offset, line, lineStart int64
	head                    map[string]json.RawMessage
	headBytes               int
	repeated                []string
	listed                  bool
}

// state is the part of the document that the reader is in.
type state int

const (
	atStart state = iota
	inObject
	inList
	behindItem
	atEnd
)

// NewReader returns a Reader of the document in r, which is UTF-8 without a byte order mark.
func NewReader(r io.Reader, opts Options) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 32<<10), opts: opts, head: map[string]json.RawMessage{}}
}

// Head returns the members of the object that were read so far, without the list. Of a name that repeats it has the
// last one. They are complete when Next has returned [io.EOF].
func (r *Reader) Head() map[string]json.RawMessage { return r.head }

// Repeated returns the names of members that the object has twice.
func (r *Reader) Repeated() []string { return r.repeated }

// Next returns the next item. It returns [io.EOF] once the document has ended and nothing follows it.
func (r *Reader) Next() (Item, error) {
	if r.err != nil {
		return Item{}, r.err
	}
	it, err := r.next()
	r.err = err
	return it, err
}

func (r *Reader) next() (Item, error) {
	for {
		c, err := r.peekToken()
		switch {
		case r.state == atEnd && errors.Is(err, ErrTruncated):
			return Item{}, io.EOF
		case err != nil:
			return Item{}, err
		}
		switch r.state {
		case atStart:
			err = r.begin(c)
		case inObject:
			err = r.readMember(c)
		case inList:
			if c != ']' {
				return r.readItem()
			}
			r.skip()
			r.state = inObject
			if r.opts.List == "" {
				r.state = atEnd
			} else {
				err = r.endValue('}')
			}
		case behindItem:
			// The item was returned before, because it is whole even if the document breaks off here.
			r.state = inList
			err = r.endValue(']')
		case atEnd:
			err = r.malformed("something follows the document")
		}
		if err != nil {
			return Item{}, err
		}
	}
}

// begin reads the first character of the document.
func (r *Reader) begin(c byte) error {
	switch {
	case c == '[' && r.opts.List == "":
		r.skip()
		r.state, r.listed = inList, true
	case c == '{' && r.opts.List != "":
		r.skip()
		r.state = inObject
	default:
		want := "a list"
		if r.opts.List != "" {
			want = "an object"
		}
		return r.errorf(ErrNotPage, "it begins with %q, and not as %s", c, want)
	}
	return nil
}

// readMember reads a member of the object, or its end. It ends in front of the items of the list.
func (r *Reader) readMember(c byte) error {
	if c == '}' {
		r.skip()
		if r.state = atEnd; !r.listed {
			return r.errorf(ErrNotPage, "the object has no list %q", r.opts.List)
		}
		return nil
	}
	if c != '"' {
		return r.malformed("there is %q where the name of a member is expected", c)
	}
	raw, length, err := r.readValue(r.opts.Head-r.headBytes, nil)
	if err != nil {
		return err
	}
	var name string
	if length > 0 {
		return r.errorf(ErrTooLarge, "the members beside the list have more than %d bytes", r.opts.Head)
	} else if err := json.Unmarshal(raw, &name); err != nil {
		return r.malformed("%v", err)
	}
	if c, err = r.peekToken(); err != nil {
		return err
	} else if c != ':' {
		return r.malformed("there is %q where a colon is expected", c)
	}
	r.skip()
	if c, err = r.peekToken(); err != nil {
		return err
	}
	if name == r.opts.List {
		if c != '[' || r.listed {
			return r.errorf(ErrNotPage, "%q is not one list", name)
		}
		r.skip()
		r.state, r.listed = inList, true
		return nil
	}
	r.headBytes += len(raw)
	if raw, length, err = r.readValue(r.opts.Head-r.headBytes, nil); err != nil {
		return err
	}
	if length > 0 {
		return r.errorf(ErrTooLarge, "the members beside the list have more than %d bytes", r.opts.Head)
	}
	if !json.Valid(raw) {
		return r.malformed("the value of %q is not valid", name)
	}
	if _, had := r.head[name]; had && len(r.repeated) < 10 {
		r.repeated = append(r.repeated, name)
	}
	r.headBytes += len(raw)
	r.head[name] = raw
	return r.endValue('}')
}

// readItem reads an item of the list.
func (r *Reader) readItem() (it Item, err error) {
	it.Offset = r.offset
	var sum hash.Hash
	if it.Raw, it.Length, err = r.readValue(r.opts.Item, &sum); err != nil {
		return Item{}, err
	}
	if it.Length > 0 {
		sum.Sum(it.Sum[:0])
	} else {
		if !json.Valid(it.Raw) {
			var v any
			it.Err = r.malformed("the item before that, which begins at byte %d, is not valid: %v", it.Offset, json.Unmarshal(it.Raw, &v))
		}
		it.Sum = sha256.Sum256(it.Raw)
	}
	r.state = behindItem
	return it, nil
}

// endValue skips the comma behind a value, or stops in front of the end of the list or object.
func (r *Reader) endValue(end byte) error {
	c, err := r.peekToken()
	switch {
	case err != nil:
		return err
	case c == end:
		return nil
	case c != ',':
		return r.malformed("there is %q behind a value", c)
	}
	r.skip()
	if c, err = r.peekToken(); err == nil && c == end {
		return r.malformed("there is a comma in front of %q", end)
	}
	return err
}

// readValue reads a value, and returns at most limit bytes of it, and its length if it has more. Then sum, if it is
// not nil, is set to the hash of all of it. Only the nesting and the ends of strings are looked at.
func (r *Reader) readValue(limit int, sum *hash.Hash) (raw []byte, length int64, err error) {
	var all hash.Hash
	depth, inString, escaped := 0, false, false
	for {
		b, err := r.buffered()
		if err != nil {
			return nil, 0, err
		}
		end, done := len(b), false
	scan:
		for i, c := range b {
			switch {
			case escaped:
				escaped = false
			case inString:
				if escaped = c == '\\'; c == '"' {
					inString = false
					if depth == 0 {
						end, done = i+1, true
						break scan
					}
				}
			case c == '"':
				inString = true
			case c == '{' || c == '[':
				if depth++; depth > mostDepth {
					r.discard(b[:i])
					return nil, 0, r.errorf(ErrTooLarge, "values are nested deeper than %d", mostDepth)
				}
			case (c == '}' || c == ']') && depth > 0:
				if depth--; depth == 0 {
					end, done = i+1, true
					break scan
				}
			case depth == 0 && (c == ',' || c == '}' || c == ']' || c == ':' || isBlank(c)):
				end, done = i, true
				break scan
			}
		}
		part := b[:end]
		if all == nil && len(raw)+len(part) > limit && sum != nil {
			all = sha256.New()
			all.Write(raw)
		}
		if all != nil {
			all.Write(part)
			*sum = all
		}
		length += int64(len(part))
		raw = append(raw, part[:min(len(part), max(0, limit-len(raw)))]...)
		r.discard(part)
		if done {
			break
		}
	}
	if length <= int64(limit) {
		length = 0
	}
	return raw, length, nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// peekToken skips blanks, and returns the character behind them.
func (r *Reader) peekToken() (byte, error) {
	for {
		b, err := r.buffered()
		if err != nil {
			return 0, err
		}
		rest := bytes.TrimLeft(b, " \t\n\r")
		r.discard(b[:len(b)-len(rest)])
		if len(rest) > 0 {
			return rest[0], nil
		}
	}
}

// buffered returns bytes that were read, at least one.
func (r *Reader) buffered() ([]byte, error) {
	if _, err := r.in.Peek(1); errors.Is(err, io.EOF) {
		return nil, r.errorf(ErrTruncated, "")
	} else if err != nil {
		return nil, err
	}
	return r.in.Peek(r.in.Buffered())
}

// skip skips the character that peekToken has returned.
func (r *Reader) skip() {
	b, _ := r.in.Peek(1)
	r.discard(b)
}

func (r *Reader) discard(b []byte) {
	n := len(b)
	if lines := bytes.Count(b, []byte("\n")); lines > 0 {
		r.line += int64(lines)
		r.lineStart = r.offset + int64(bytes.LastIndexByte(b, '\n')) + 1
	}
	r.offset += int64(n)
	_, _ = r.in.Discard(n)
}

func (r *Reader) malformed(format string, args ...any) error {
	return r.errorf(ErrMalformed, format, args...)
}

func (r *Reader) errorf(kind error, format string, args ...any) error {
	at := fmt.Sprintf("line %d, column %d", r.line+1, r.offset-r.lineStart+1)
	if format == "" {
		return fmt.Errorf("%s: %w", at, kind)
	}
	return fmt.Errorf("%s: %s: %w", at, fmt.Sprintf(format, args...), kind)
}
