package syndication

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// cursor is the position in a feed. The versions of entries are not part of it; they
// are read from the topic. Its stored form is JSON with a version number, of at most
// maxCursor bytes.
//
// The embedded structs group the fields; the stored form has all of them in one object.
type cursor struct {
	Version int `json:"v"`

	startPosition
	// Shared are the IDs that several items have.
	Shared sharedIDs `json:"shared,omitempty"`
	detected
	redirect
	lastDocument
	olderDocuments
	unfinished
	// Tail is the page that is asked for next in mode tail.
	Tail string `json:"tail,omitempty"`
}

// startPosition excludes entries from before the start.
type startPosition struct {
	// Start is the start position until the first poll has used it; "" afterwards.
	Start string `json:"start,omitempty"`
	// Since excludes entries that are older than that time and that the topic does not
	// have. Seen excludes the entries that the feed had when reading started; it has
	// short hashes of their IDs and contents.
	Since instant `json:"since,omitempty"`
	Seen  []byte  `json:"seen,omitempty"`
}

// detected are the properties of the feed that were detected.
type detected struct {
	Dialect Dialect        `json:"dialect,omitempty"`
	Format  feedxml.Format `json:"format,omitempty"`
	Order   feedxml.Order  `json:"order,omitempty"`
	// MessageBody is the format of the bodies of messages, to report a change; "" for XML.
	MessageBody BodyFormat `json:"message_body,omitempty"`
}

// redirect is the permanent redirect of the subscription document.
type redirect struct {
	// URL is the address to which it has moved for good, and From the hash of its earlier
	// URL. Moved is a permanent redirect that has not been seen often enough yet.
	URL   string `json:"url,omitempty"`
	From  string `json:"from,omitempty"`
	Moved *moved `json:"moved,omitempty"`
}

// lastDocument is the subscription document that was published last.
type lastDocument struct {
	// ETag and Modified are its validators, as received, and Body is the hash of its body.
	// At is the hash of the URL that they belong to, and Full when a whole document came,
	// in Unix seconds. They are empty while anything of a poll is not published yet.
	At       string `json:"at,omitempty"`
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"last_modified,omitempty"`
	Body     string `json:"body,omitempty"`
	Full     int64  `json:"full,omitempty"`
	// TitleHashes are those of its first entries, and Hints its polling hints.
	TitleHashes titleHashes   `json:"looks,omitempty"`
	Hints       feedxml.Hints `json:"hints,omitzero"`
}

// olderDocuments are the archives, or the pages of a paged feed.
type olderDocuments struct {
	// Archives are short hashes of the archives that are published, oldest
	// first. An archive is among them only if all older ones of its walk are,
	// or are gaps. Newest is the URL of the last.
	Archives []byte `json:"archives,omitempty"`
	Newest   string `json:"newest,omitempty"`
	Gaps     []gap  `json:"gaps,omitempty"`
	// Awaited is the older document that could not be read at the last attempt.
	Awaited *awaited `json:"awaited,omitempty"`
	// Walked is the time at which all pages were last read, in Unix seconds.
	Walked int64 `json:"walked,omitempty"`
}

// unfinished is the progress of a poll whose subscription document is not published yet, or whose deletes
// are held back.
type unfinished struct {
	// Parts counts the parts of documents and the older documents that were published, until the
	// subscription document is. It is stored because a batch that does not move the cursor ends the
	// reading, and they may change nothing else.
	Parts int `json:"parts,omitempty"`
	// Doc is the progress of the document that is being published.
	Doc *progress `json:"doc,omitempty"`
	// Held are the deletes that are held back.
	Held *hold `json:"held,omitempty"`
}

// progress is the published part of a document: its entries up to the one with that
// key.
type progress struct {
	URL   string        `json:"url"`  // hash
	Hash  string        `json:"hash"` // of the body
	Order feedxml.Order `json:"order"`
	Key   publishOrder  `json:"key"`
	// Live is the number of entries that the topic had before the document; 0 once the missing
	// ones may be deleted.
	Live int `json:"live,omitempty"`
}

// moved is a permanent redirect that was seen.
type moved struct {
	To    string `json:"to"`
	Since int64  `json:"since"` // Unix seconds
	Times int    `json:"times"` // at most movedTimes
}

const (
	cursorVersion = 1
	maxCursor     = 32 << 10
	// maxArchives is the maximum number of published archives in the cursor, and
	// archiveBytes the length of the hash of each.
	maxArchives  = 1000
	archiveBytes = 8
	maxGaps      = 20
	// maxSeen is the maximum number of entries that "start: now" can distinguish from
	// later ones by their contents, and seenBytes the length of the hash of each.
	maxSeen   = 1000
	seenBytes = 6
	// longestURL and longestValidator are the longest URL and validator that the cursor
	// keeps, in bytes. Longer ones are not kept, which costs requests.
	longestURL       = 500
	longestValidator = 500
)

func decodeCursor(c feed.Cursor, start source.Start) (cursor, error) {
	cur := cursor{Version: cursorVersion}
	if len(c) == 0 {
		if start != (source.Start{}) {
			cur.Start = start.String()
		}
		return cur, nil
	}
	if err := json.Unmarshal(c, &cur); err != nil {
		return cursor{}, feed.Permanent(fmt.Errorf("read the cursor: %w", err))
	}
	if cur.Version != cursorVersion {
		return cursor{}, feed.Permanent(fmt.Errorf("the cursor has version %d and this program reads version %d; run the feedbridge that wrote it, or a newer one", cur.Version, cursorVersion))
	}
	if !cur.isSound() {
		return cursor{}, feed.Permanent(errors.New("read the cursor: it is damaged; 'feedbridge checkpoint set' names another place"))
	}
	return cur, nil
}

// isSound reports whether a cursor is one that this program could have written: it
// may come from a person.
func (cur *cursor) isSound() bool {
	_, err := parseStart(cur.Start)
	long := []string{cur.URL, cur.ETag, cur.Modified, cur.Newest, cur.Tail}
	brief := []string{cur.Start, cur.From, cur.At, cur.Body, string(cur.Dialect), string(cur.Format), string(cur.Order), string(cur.MessageBody)}
	if cur.Moved != nil {
		long = append(long, cur.Moved.To)
	}
	if cur.Held != nil {
		brief = append(brief, cur.Held.Deletes)
	}
	if p := cur.Doc; p != nil {
		brief = append(brief, p.URL, p.Hash, string(p.Order))
	}
	if cur.Awaited != nil {
		brief = append(brief, cur.Awaited.URL)
	}
	for _, g := range cur.Gaps {
		long, brief = append(long, g.URL), append(brief, g.Kind)
	}
	isLonger := func(n int) func(string) bool { return func(s string) bool { return len(s) > n } }
	return err == nil && len(cur.Gaps) <= maxGaps &&
		len(cur.Archives)%archiveBytes == 0 && len(cur.Archives) <= maxArchives*archiveBytes &&
		len(cur.TitleHashes)%titleHashBytes == 0 && len(cur.TitleHashes) <= feedxml.MaxTitleHashes*titleHashBytes &&
		len(cur.Seen)%seenBytes == 0 && len(cur.Seen) <= maxSeen*seenBytes &&
		len(cur.Shared)%sharedBytes == 0 && len(cur.Shared) <= maxShared*sharedBytes &&
		!slices.ContainsFunc(long, isLonger(longestURL)) && !slices.ContainsFunc(brief, isLonger(64))
}

// encodeCursor returns the stored form. If that would be too long, it drops the title
// hashes, then the oldest archives, then the oldest gaps, then the oldest shared IDs.
func (cur *cursor) encodeCursor() feed.Cursor {
	for {
		data, err := json.Marshal(cur)
		if err != nil {
			panic(fmt.Sprintf("syndication: %v", err)) // strings and numbers
		}
		switch {
		case len(data) <= maxCursor:
			return data
		case len(cur.TitleHashes) > 0:
			cur.TitleHashes = nil
		case len(cur.Archives) > 0:
			cur.Archives = cur.Archives[min(len(cur.Archives), 100*archiveBytes):]
		case len(cur.Gaps) > 0:
			cur.Gaps = cur.Gaps[1:]
		case len(cur.Shared) > 0:
			cur.Shared = cur.Shared[sharedBytes:]
		default:
			panic("syndication: the cursor is too long") // all else is bounded
		}
	}
}

// hasArchive reports whether an archive is published.
func (o *olderDocuments) hasArchive(url string) bool {
	k := hashKey(url)
	return containsHash(o.Archives, k[:archiveBytes])
}

// containsHash reports whether a hash is among others of the same length.
func containsHash(all, hash []byte) bool {
	for one := range slices.Chunk(all, len(hash)) {
		if bytes.Equal(one, hash) {
			return true
		}
	}
	return false
}

// archivesUpTo returns the published archives up to the one with that URL; all of them if it is not among them.
func (o *olderDocuments) archivesUpTo(url string) []byte {
	k := hashKey(url)
	for i := 0; i < len(o.Archives); i += archiveBytes {
		if bytes.HasPrefix(o.Archives[i:], k[:archiveBytes]) {
			return o.Archives[:i+archiveBytes]
		}
	}
	return o.Archives
}

// hasPage reports whether the document with that number is among the archives.
func hasPage(archives []byte, page uint32) bool {
	for k := range slices.Chunk(archives, archiveBytes) {
		if binary.BigEndian.Uint32(k) == page {
			return true
		}
	}
	return false
}

// addArchive records that an archive is published, unless its URL is "".
func (o *olderDocuments) addArchive(url string) {
	if url == "" || o.hasArchive(url) {
		return
	}
	k := hashKey(url)
	all := append(slices.Clone(o.Archives), k[:archiveBytes]...)
	o.Archives = all[max(0, len(all)-maxArchives*archiveBytes):]
}

// sawEntry reports whether the feed had the entry when reading started.
func (cur *cursor) sawEntry(it *item) bool {
	return len(cur.Seen) > 0 && containsHash(cur.Seen, seenKey(it.own, it.shortHash()))
}

func seenKey(id string, hash [16]byte) []byte {
	k := hashKey(id + "\x00" + string(hash[:]))
	return k[:seenBytes]
}

// shortURL returns the URL, or "" if it is too long for the cursor.
func shortURL(url string) string {
	if len(url) > longestURL {
		return ""
	}
	return url
}

// equivalent reports whether two cursors differ only in fields that save requests:
// validators, hints, and the time of the last whole document. Reading continues from
// both at the same entry.
func equivalent(a, b cursor) bool {
	for _, cur := range []*cursor{&a, &b} {
		cur.ETag, cur.Modified, cur.Full, cur.Hints = "", "", 0, feedxml.Hints{}
	}
	return bytes.Equal(a.encodeCursor(), b.encodeCursor())
}

// hashOf returns the hash of a URL in the form that the cursor has.
func hashOf(url string) string {
	k := hashKey(url)
	return hex.EncodeToString(k[:8])
}

// resolveStart clears the start position unless it is "now", which needs a document,
// and sets Since for a start at a time.
func (cur *cursor) resolveStart() error {
	start, err := parseStart(cur.Start)
	if err != nil {
		return feed.Permanent(err)
	}
	if cur.Start != "" && !start.Now {
		cur.Start = ""
		if !start.At.IsZero() {
			cur.Since = instantOf(start.At)
		}
	}
	return nil
}

// gap is an archive that could not be read and is no longer waited for. It has the link
// to the older archives.
type gap struct {
	URL   string `json:"url"`
	Kind  string `json:"kind"`
	Retry int64  `json:"retry"` // of the next attempt, in Unix seconds
	Times int    `json:"times"`
}

// awaited is a document that could not be read, perhaps only for the moment. Nothing is
// published while it is waited for.
type awaited struct {
	URL   string `json:"url"`   // hash
	Since int64  `json:"since"` // Unix seconds
}

const (
	// patience bounds the wait for a document. Most servers that were down are back by
	// then, and the order is kept. A document that cannot be read at all must not stop
	// the feed.
	patience = 6 * time.Hour
)

// isOverdue reports whether a document has been waited for long enough.
func (o *olderDocuments) isOverdue(now time.Time) bool {
	return o.Awaited != nil && now.Sub(time.Unix(o.Awaited.Since, 0)) >= patience
}

// endWait records that a document was read, if it was waited for.
func (o *olderDocuments) endWait(url string) {
	if o.Awaited != nil && o.Awaited.URL == hashOf(url) {
		o.Awaited = nil
	}
}

// gapIndex returns the index of the gap with that URL; -1 if there is none.
func (o *olderDocuments) gapIndex(url string) int {
	return slices.IndexFunc(o.Gaps, func(g gap) bool { return g.URL == url })
}

// dueGap returns the first gap that is due for another attempt.
func (o *olderDocuments) dueGap(now time.Time) (gap, bool) {
	for _, g := range o.Gaps {
		if g.Retry <= now.Unix() {
			return g, true
		}
	}
	return gap{}, false
}

// hold is a set of deletes that are held back until the same entries are still missing
// at a later time. It is in the cursor, so any copy of the program can decide about it.
type hold struct {
	Deletes  string `json:"deletes"` // hash of their IDs
	Vanished int    `json:"vanished"`
	Of       int    `json:"of"`
	Since    int64  `json:"since"` // Unix seconds
	Until    int64  `json:"until"`
}

// isDue reports whether the document has to be read again: the wait is over, or the
// configuration now allows so many deletes.
func (h *hold) isDue(ratio float64, now time.Time) bool {
	return h != nil && (now.Unix() >= h.Until || !tooMany(h.Vanished, h.Of, ratio))
}

func tooMany(vanished, of int, ratio float64) bool {
	return of >= fewEntries && float64(vanished) > ratio*float64(of)
}

// fewEntries is the least number of entries of a complete feed whose deletes can be
// held back.
const fewEntries = 20

// dropValidators clears the validators, so that the next poll reads the whole document.
func (l *lastDocument) dropValidators() {
	l.At, l.ETag, l.Modified, l.Body = "", "", "", ""
}

func validator(value string) string {
	if len(value) > longestValidator || strings.ContainsFunc(value, func(r rune) bool { return r == 0xFFFD }) {
		return ""
	}
	return value
}
