package syndication

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Preview describes a document of a feed.
type Preview struct {
	Format  feedxml.Format
	Dialect Dialect
	Title   string
	Newest  []PreviewEntry // the newest first
}

// PreviewEntry is an entry of a preview. Its time is that of its publication or else of its last change, and zero if
// the document has neither.
type PreviewEntry struct {
	Title string
	Time  time.Time
}

// ReadPreview reads a document, and describes it with at most that many of its newest entries. If it breaks off,
// the preview has what was read.
func ReadPreview(document io.Reader, opts feedxml.Options, most int) (Preview, error) {
	opts.Lenient, opts.CutEntries = true, true
	r := feedxml.NewReader(document, opts)
	var newest []feedxml.Entry
	var err error
	for err == nil {
		var e feedxml.Entry
		if e, err = r.Next(); err != nil || e.Deleted {
			continue
		}
		// Without times the order is that of the document, which mostly begins with the newest entry.
		newest = append(newest, e)
		slices.SortStableFunc(newest, func(a, b feedxml.Entry) int { return entryTime(&b).Compare(entryTime(&a)) })
		newest = newest[:min(len(newest), most)]
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, feedxml.ErrTruncated) {
		err = nil
	}
	m := r.Meta()
	p := Preview{Format: m.Format, Title: strings.Join(strings.Fields(m.Title), " ")}
	p.Dialect, _, _ = (&decider{}).documentDialect(m)
	for i := range newest {
		p.Newest = append(p.Newest, PreviewEntry{Title: entryTitle(&newest[i], opts.URL), Time: entryTime(&newest[i])})
	}
	return p, err
}

func entryTime(e *feedxml.Entry) time.Time {
	if e.Published.Time.IsZero() {
		return e.Updated.Time
	}
	return e.Published.Time
}

// entryTitle returns the title of an entry as text, or else the beginning of its content, or else its ID.
func entryTitle(e *feedxml.Entry, base string) string {
	d := entry.ReadItem(e.Body, base)
	if a, ok := entry.Read(e.Body, base); ok {
		d = a.Document(e.ID)
	} else if d == nil {
		d = &entry.Document{}
	}
	title := strings.ToValidUTF8(cmp.Or(d.Title, d.Summary, d.ContentText, e.ID), "")
	return strings.Join(strings.Fields(title[:min(len(title), 1000)]), " ")
}
