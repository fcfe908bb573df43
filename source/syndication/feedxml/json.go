package feedxml

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/internal/jsonpage"
)

// jsonVersion is part of the version of every JSON Feed, whatever its scheme and host prefix. Versions 1 and 1.1 are
// read.
const jsonVersion = "jsonfeed.org/version/1"

// jsonReader reads the items of a JSON Feed (version 1.1 and 1).
type jsonReader struct {
	*entryReader
	opts   *Options
	faults *Faults
	meta   *Meta
	pages  *jsonpage.Reader
}

// detect reads until the version of the feed is known, and returns an error if it is no JSON Feed.
func (r *jsonReader) detect() error {
	for {
		_, err := r.pages.Next()
		if r.pages.Head()["version"] != nil || errors.Is(err, io.EOF) && !errors.Is(err, jsonpage.ErrTruncated) {
			return r.checkVersion()
		} else if err != nil {
			return r.explain(err)
		}
	}
}

// checkVersion returns an error unless the document has the version of a JSON Feed.
func (r *jsonReader) checkVersion() error {
	raw, ok := r.pages.Head()["version"]
	if !ok {
		return r.fail(ErrNotFeed, "it is JSON without a version, and no JSON Feed")
	}
	v := jsonText(raw)
	if _, minor, ok := strings.Cut(v, jsonVersion); !ok || strings.TrimLeft(minor, "0123456789") != minor {
		return r.fail(ErrNotFeed, "it is JSON of the version %s, and no JSON Feed of version 1 or 1.1", Excerpt(v))
	}
	return nil
}

// next returns the next item. Behind the last one it completes the description of the document.
func (r *jsonReader) next() (Entry, error) {
	for {
		it, err := r.pages.Next()
		truncated := errors.Is(err, jsonpage.ErrTruncated)
		switch {
		case truncated && r.opts.Lenient && r.pages.Head()["version"] != nil:
			r.faults.Truncated = true
			r.recordJSONFault(it.Offset, r.explain(err))
			return Entry{}, cmp.Or(r.describe(), io.EOF)
		case errors.Is(err, io.EOF) && !truncated:
			return Entry{}, cmp.Or(r.describe(), io.EOF)
		case err != nil:
			return Entry{}, r.explain(err)
		}
		e, err := r.readItem(it)
		r.count++
		switch {
		case err == nil:
			return e, nil
		case !r.opts.Lenient || errors.Is(err, ErrTooLarge):
			return Entry{}, err
		}
		r.faults.LeftOut++
		r.recordJSONFault(it.Offset, err)
	}
}

func (r *jsonReader) recordJSONFault(offset int64, err error) {
	if r.faults.countFault(offset) {
		// An error also names the consequence of a fault that is not repaired, and this one is.
		text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), r.name()+": "), ": "+ErrMalformed.Error())
		text, _, _ = strings.Cut(text, "; it is read again") // of ErrTruncated
		r.faults.insertFault(locatedFault{offset, text, err})
	}
}

// explain returns an error of the document as one of this package.
func (r *jsonReader) explain(err error) error {
	for from, to := range map[error]error{
		jsonpage.ErrNotPage: ErrNotFeed, jsonpage.ErrTruncated: ErrTruncated, jsonpage.ErrMalformed: ErrMalformed, jsonpage.ErrTooLarge: ErrTooLarge,
	} {
		if errors.Is(err, from) {
			text := r.name() + ": " + err.Error()
			switch {
			case errors.Is(from, jsonpage.ErrTooLarge): // no key changes these limits
				return &documentError{kind: to, text: text}
			case errors.Is(from, jsonpage.ErrTruncated):
				text = strings.TrimSuffix(text, ": "+from.Error()) // to says the same
			}
			return fmt.Errorf("%s: %w", text, to)
		}
	}
	return err
}

func (r *jsonReader) fail(kind error, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", r.name(), fmt.Sprintf(format, args...), kind)
}

// name returns the URL of the document in errors.
func (r *jsonReader) name() string { return cmp.Or(r.opts.URL, "the document") }

// readItem returns the Entry of an item.
func (r *jsonReader) readItem(it jsonpage.Item) (Entry, error) {
	e := Entry{Index: r.count, Offset: it.Offset, Body: it.Raw, Length: it.Length, Hash: it.Sum}
	if it.Length > 0 && !r.opts.CutEntries {
		return e, r.fail(ErrTooLarge, "an item has %d bytes, and %d are the most (limits.entity)", it.Length, r.opts.Limits.Entry)
	}
	if it.Err != nil {
		return e, r.fail(ErrMalformed, "%v", it.Err)
	}
	members, repeated := jsonpage.Members(it.Raw)
	if it.Length == 0 && members == nil {
		return e, r.fail(ErrMalformed, "the item at byte %d is no object", it.Offset)
	}
	if len(repeated) > 0 {
		r.violationf(kindRepeatedMember, "item %d has the member %s twice; the last one counts", e.Index, Excerpt(repeated[0]))
	}
	if _, n := jsonpage.MarkInvalid(it.Raw); n > 0 && it.Length == 0 {
		r.violationf(kindInvalidText, "item %d has half a surrogate pair; in its id that is written as %%uD800", e.Index)
	}
	text := func(name string) string {
		marked, _ := jsonpage.MarkInvalid(members[name])
		whole := jsonText(marked)
		if short := strings.TrimSpace(whole); name != "id" || short == "" {
			return short
		}
		return whole // different ids may differ in blanks only
	}
	var attachments []struct {
		URL string `json:"url"`
	}
	_ = json.Unmarshal(members["attachments"], &attachments)
	own := entryParts{id: text("id"), link: cmp.Or(text("url"), text("external_url")), base: r.opts.URL}
	own.hasLink = own.link != ""
	own.title, own.description = shownText(text("title")), shownText(text("summary"))
	own.encoded = shownText(text("content_html") + text("content_text"))
	own.published = shownText(text("date_published"))
	if len(attachments) > 0 {
		own.enclosure = clipText(attachments[0].URL)
	}
	e.Published = r.parseDate("date_published", text("date_published"))
	e.Updated = r.parseDate("date_modified", text("date_modified"))
	if len(r.opts.HashWithout) > 0 && it.Length == 0 {
		e.Hash = sha256.Sum256(r.withoutIgnored(it.Raw))
	}
	r.identify(&e, &own)
	e.identifyByHash()
	if e.IDFrom.Weak() {
		r.violationf(kindWeakID, "item %d, at byte %d, has no id of its own; its %s is used", e.Index, e.Offset, e.IDFrom)
	}
	return e, nil
}

// shownText returns a text as the functions for the content of elements read it.
func shownText(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(xmlEscaper.Replace(text))
}

var xmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;")

// jsonText returns a string; a number or a boolean as it is written, as version 1.1 recommends for IDs; "" for
// everything else.
func jsonText(raw json.RawMessage) string {
	var s string
	switch {
	case len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null":
		return ""
	case raw[0] != '"':
		return string(raw)
	case json.Unmarshal(raw, &s) != nil:
		return ""
	}
	return s
}

// withoutIgnored returns an item without the members of [Options.HashWithout], at any depth.
func (r *jsonReader) withoutIgnored(raw []byte) []byte {
	var item any
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	if in.Decode(&item) != nil || !r.removeIgnored(item) {
		return raw
	}
	b, err := json.Marshal(item)
	if err != nil {
		return raw
	}
	return b
}

func (r *jsonReader) removeIgnored(value any) (removed bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			if slices.ContainsFunc(r.opts.HashWithout, func(n xml.Name) bool { return n.Local == name }) {
				delete(value, name)
				removed = true
			} else {
				removed = r.removeIgnored(child) || removed
			}
		}
	case []any:
		for _, child := range value {
			removed = r.removeIgnored(child) || removed
		}
	}
	return removed
}

// describe completes the description of the document, all of whose members were read.
func (r *jsonReader) describe() error {
	head, meta := r.pages.Head(), r.meta
	if err := r.checkVersion(); err != nil {
		return err
	}
	for _, name := range r.pages.Repeated() {
		r.violationf(kindRepeatedMember, "the document has the member %s twice; the last one counts", Excerpt(name))
	}
	text := func(name string) string { return clipText(strings.TrimSpace(jsonText(head[name]))) }
	meta.Version, meta.Title, meta.ID = text("version"), text("title"), text("feed_url")
	r.addJSONLink("alternate", text("home_page_url"))
	r.addJSONLink("self", text("feed_url"))
	r.addJSONLink("next", text("next_url"))
	var hubs []any
	if _ = json.Unmarshal(head["hubs"], &hubs); len(hubs) > 0 {
		r.violationf(kindHubs, "the feed names %d hubs, which are not used: it is polled", len(hubs))
	}
	if meta.Hints.Expired = jsonText(head["expired"]) == "true"; meta.Hints.Expired {
		r.violationf(kindExpired, "the feed says that nothing will come any more")
	}
	var authors []jsonAuthor
	var one jsonAuthor // of version 1
	if json.Unmarshal(head["authors"], &authors) != nil || len(authors) == 0 {
		_ = json.Unmarshal(head["author"], &one)
		authors = []jsonAuthor{one}
	}
	for _, author := range authors {
		meta.addAuthor(cmp.Or(author.Name, author.URL))
	}
	return nil
}

// jsonAuthor is an author of a JSON Feed.
type jsonAuthor struct{ Name, URL string }

func (r *jsonReader) addJSONLink(rel, ref string) {
	if ref == "" {
		return
	}
	href, ok := resolveLink(r.opts.URL, ref)
	if !ok {
		r.violationf(kindBadHref, "the link %s %q is no URL, and is ignored", rel, Excerpt(ref))
		return
	}
	r.meta.Links = append(r.meta.Links, Link{Rel: rel, Href: href, Raw: ref})
}
