package feedxml

import (
	"bytes"
	"crypto/sha256"
	"hash"
)

// mostOfLarge is the maximum size of a child of a large entry that is read, in bytes. IDs,
// links, dates and titles are shorter.
const mostOfLarge = 2 * longestAddress

// largeEntry is an entry that is above its limit. The reader skips it, and reads in its place an
// entry that has only its small children.
type largeEntry struct {
	in      *input
	skipped int    // unread bytes that are not discarded yet
	rest    []byte // the beginning of what follows its start tag
	length  int64
	sum     hash.Hash // of the whole entry
	offset  int64

	kept     []byte // its start tag and small children
	limit    int    // of rest, and of kept
	from     int    // where the present child begins in kept
	dropping bool   // the present child is not kept
}

// shrinkEntry replaces the entry at the start of the unread bytes, which is above its limit, by
// one that has only its small children, so that it can be read. It returns cause if it cannot,
// or the error of the input in which the entry does not end.
func shrinkEntry(r *tokenizer, cause error) (*largeEntry, error) {
	limit := r.opts.Limits.Entry
	t, err := r.scan.scanTag(r.pieceBytes(limit), 0)
	name := string(r.in.unreadBytes()[1:max(t.nameEnd, 1)])
	closing := "</" + name + ">"
	if err != nil || t.end == 0 || t.empty || t.end+len(closing) > limit {
		return nil, cause
	}
	l := &largeEntry{in: &r.in, sum: sha256.New(), offset: r.in.offset, limit: limit - len(closing)}
	l.kept = append(l.kept, r.in.unreadBytes()[:t.end]...)
	l.sum.Write(l.kept)
	l.length, l.from = int64(t.end), t.end
	r.in.discardBytes(t.end)
	if err := l.skipContent(); err != nil {
		return nil, r.endError(err)
	}
	r.in.replace(0, append(l.kept, closing...))
	return l, nil
}

// skipContent skips the rest of the entry. It keeps count of the open elements, without their
// names, because the markup of an entry that is this large is not checked.
func (l *largeEntry) skipContent() (err error) {
	for depth := 1; depth > 0 && err == nil; {
		if err = l.takeThrough("<", false); err != nil {
			break
		}
		for err == nil && len(l.ahead()) < len(openCDATA) { // the longest opener
			err = l.readMore()
		}
		b := l.ahead()
		if len(b) < 2 {
			break
		}
		switch err = nil; {
		case bytes.HasPrefix(b, openComment):
			err = l.takeThrough("-->", true)
		case bytes.HasPrefix(b, openCDATA):
			err = l.takeThrough("]]>", true)
		case b[1] == '?':
			err = l.takeThrough("?>", true)
		case b[1] == '/':
			if depth--; depth == 0 {
				l.endChild()
				l.dropping = true
			}
			if err = l.takeThrough(">", true); depth == 1 {
				l.endChild()
			}
		case isNameStart[b[1]]:
			if depth == 1 {
				l.endChild() // the text before it
			}
			var empty bool
			if empty, err = l.takeTag(); !empty {
				depth++
			} else if depth == 1 {
				l.endChild()
			}
		default:
			l.take(1)
		}
	}
	l.discard()
	return err
}

// takeTag skips a start tag, and reports whether it is an empty-element tag.
func (l *largeEntry) takeTag() (empty bool, err error) {
	for err == nil {
		b := l.ahead()
		switch i := bytes.IndexAny(b, `>"'`); {
		case i >= 0 && b[i] == '>':
			empty = i > 0 && b[i-1] == '/'
			l.take(i + 1)
			return empty, nil
		case i >= 0:
			l.take(i + 1)
			err = l.takeThrough(string(b[i]), true)
		default:
			l.take(max(0, len(b)-1)) // the last byte may be a /
			err = l.readMore()
		}
	}
	return false, err
}

// takeThrough skips bytes up to an end, and the end if with is set.
func (l *largeEntry) takeThrough(end string, with bool) error {
	for {
		b := l.ahead()
		if i := bytes.Index(b, []byte(end)); i >= 0 {
			if with {
				i += len(end)
			}
			l.take(i)
			return nil
		}
		l.take(max(0, len(b)-len(end)+1))
		if err := l.readMore(); err != nil {
			return err
		}
	}
}

// ahead returns the bytes that were read and not skipped.
func (l *largeEntry) ahead() []byte { return l.in.unreadBytes()[l.skipped:] }

// take skips n bytes.
func (l *largeEntry) take(n int) {
	if b := l.ahead()[:n]; !l.dropping {
		l.kept = append(l.kept, b[:min(n, mostOfLarge+1)]...)
		if len(l.kept)-l.from > mostOfLarge || len(l.kept) > l.limit {
			l.kept, l.dropping = l.kept[:l.from], true
		}
	}
	l.skipped += n
}

// readMore reads more of the document.
func (l *largeEntry) readMore() error {
	l.discard()
	return l.in.readMore(0, usualBuffer)
}

// discard discards the bytes that were skipped, all at once because a hash of a few is slow.
func (l *largeEntry) discard() {
	b := l.in.unreadBytes()[:l.skipped]
	l.sum.Write(b)
	l.length += int64(len(b))
	l.rest = append(l.rest, b[:min(len(b), max(0, l.limit-len(l.rest)))]...)
	l.in.discardBytes(len(b))
	l.skipped = 0
}

// endChild begins the next child.
func (l *largeEntry) endChild() { l.from, l.dropping = len(l.kept), false }

// complete returns e, which was read in place of the large entry, with the fields of that. b begins with its start tag, t.
func (l *largeEntry) complete(e Entry, inherit *inheritance, base string, b []byte, t tag) Entry {
	b = append(bytes.Clone(b[:t.end]), bytes.ToValidUTF8(l.rest, nil)...)
	e.Body, e.Length, e.Offset = inherit.standalone(b, t, attributes(nil, b, t), base), l.length, l.offset
	l.sum.Sum(e.Hash[:0])
	e.identifyByHash()
	return e
}
