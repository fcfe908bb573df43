package entry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// ContentType is the media type of an encoded entry.
const ContentType = "application/json"

// Document is an encoded entry: the fields of JSON Feed 1.1 under their names, and those that it lacks. A
// field that the entry lacks, or has without text, is absent.
type Document struct {
	ID            string       `json:"id"`
	OriginalID    string       `json:"original_id,omitempty"`
	URL           string       `json:"url,omitempty"`
	Title         string       `json:"title,omitempty"`
	TitleHTML     string       `json:"title_html,omitempty"`
	ContentHTML   string       `json:"content_html,omitempty"`
	ContentText   string       `json:"content_text,omitempty"`
	Summary       string       `json:"summary,omitempty"`
	SummaryHTML   string       `json:"summary_html,omitempty"`
	Image         string       `json:"image,omitempty"`
	DatePublished string       `json:"date_published,omitempty"`
	DateModified  string       `json:"date_modified,omitempty"`
	Language      string       `json:"language,omitempty"`
	BaseURL       string       `json:"base_url,omitempty"`
	Authors       []Person     `json:"authors,omitempty"`
	Contributors  []Person     `json:"contributors,omitempty"`
	Tags          []string     `json:"tags,omitempty"`
	Categories    []Category   `json:"categories,omitempty"`
	Attachments   []attachment `json:"attachments,omitempty"`
	Links         []Link       `json:"links,omitempty"`
	Rights        string       `json:"rights,omitempty"`
	RightsHTML    string       `json:"rights_html,omitempty"`
	Source        *Feed        `json:"source,omitempty"`
	Feed          *Feed        `json:"feed,omitempty"`
	Extensions    Extensions   `json:"extensions,omitempty"`
	XML           string       `json:"xml,omitempty"`
}

// attachment is an enclosure, as JSON Feed has it.
type attachment struct {
	URL         string `json:"url"`
	MIMEType    string `json:"mime_type,omitempty"`
	Title       string `json:"title,omitempty"`
	SizeInBytes int64  `json:"size_in_bytes,omitempty"`
	// Duration is in seconds.
	Duration float64 `json:"duration_in_seconds,omitempty"`
}

// Encode returns an entry as JSON. id is that of its message.
func (a *Entry) Encode(id string) []byte { return a.Document(id).Marshal() }

// Document returns an entry as it is encoded. id is that of its message.
func (a *Entry) Document(id string) *Document {
	d := &Document{
		ID: id, Language: a.Language, BaseURL: a.BaseURL, Authors: a.Authors, Contributors: a.Contributors,
		Source: a.Source, Feed: a.Feed, Extensions: a.Extensions, XML: a.XML,
	}
	if a.ID != id {
		d.OriginalID = a.ID
	}
	d.Title, d.TitleHTML = a.Title.split(len(id) + 4<<10)
	d.Summary, d.SummaryHTML = a.Summary.split(longestSummary)
	d.Rights, d.RightsHTML = a.Rights.split(longestSummary)
	if a.Content != nil && a.Content.IsHTML {
		d.ContentHTML = a.Content.Text
	} else if a.Content != nil {
		d.ContentText = a.Content.Text
	}
	d.DatePublished, _ = FormatTime(a.Published)
	d.DateModified, _ = FormatTime(a.Updated)
	if d.Language == "" {
		d.Language = textOf(a.Extensions[DCSpace]["language"])
	}
	d.setLinks(a)
	for _, c := range a.Categories {
		d.Tags = append(d.Tags, c.Term)
		if c.Scheme != "" || c.Label != "" {
			d.Categories = a.Categories
		}
	}
	return d
}

// Marshal returns the document as JSON.
func (d *Document) Marshal() []byte {
	var b bytes.Buffer
	b.Grow(1<<10 + len(d.TitleHTML) + len(d.SummaryHTML) + len(d.ContentHTML) + len(d.ContentText))
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(d); err != nil {
		panic(err) // it has texts and numbers only
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// setLinks sets the fields that JSON Feed has for links, and all links if these fields lack something.
func (d *Document) setLinks(a *Entry) {
	page, _ := a.FindLink("alternate")
	d.URL = page.Href
	if d.URL == "" || len(a.Links) > 1 || !reflect.DeepEqual(a.Links[0], Link{Rel: "alternate", Href: d.URL}) {
		d.Links = a.Links
	}
	d.Image = cmp.Or(attributeOf(a.Extensions.in(mediaSpace)["thumbnail"], "url"), attributeOf(a.Extensions.in(itunesSpace)["image"], "href"))
	for _, l := range a.Links {
		if l.Rel != "enclosure" {
			continue
		}
		size, _ := strconv.ParseInt(l.Length, 10, 64)
		d.Attachments = append(d.Attachments, attachment{URL: l.Href, MIMEType: l.Type, Title: l.Title, SizeInBytes: max(0, size)})
		if d.Image == "" && strings.HasPrefix(l.Type, "image/") {
			d.Image = l.Href
		}
	}
}

// Decode parses what Encode returns. base is that of the document with the entry. It reports false for
// other JSON.
func Decode(b []byte, base string) (*Entry, bool) {
	d, ok := Parse(b)
	if !ok {
		return nil, false
	}
	return d.Entry(base, len(b)), true
}

// Parse parses what Marshal returns. It reports false for other JSON.
func Parse(b []byte) (*Document, bool) {
	var d Document
	if err := json.Unmarshal(b, &d); err != nil || d.ID == "" {
		return nil, false
	}
	return &d, true
}

// Entry returns the entry that a document of size bytes has. base is that of the document with the entry.
func (d *Document) Entry(base string, size int) *Entry {
	a := &Entry{
		ID: cmp.Or(d.OriginalID, d.ID), Base: ResolveURL(base, d.BaseURL), BaseURL: d.BaseURL, Language: d.Language,
		Title: join(d.Title, d.TitleHTML), Summary: join(d.Summary, d.SummaryHTML), Content: join(d.ContentText, d.ContentHTML), Rights: join(d.Rights, d.RightsHTML),
		Links: d.Links, Authors: d.Authors, Contributors: d.Contributors, Categories: d.Categories,
		Published: d.DatePublished, Updated: d.DateModified, Source: d.Source, Feed: d.Feed, XML: d.XML,
	}
	if d.Links == nil && d.URL != "" {
		a.Links = []Link{{Rel: "alternate", Href: d.URL}}
	}
	if _, has := a.FindLink("enclosure"); !has {
		for _, at := range d.Attachments { // of a JSON Feed, which has no links
			length := ""
			if at.SizeInBytes > 0 {
				length = strconv.FormatInt(at.SizeInBytes, 10)
			}
			a.Links = append(a.Links[:len(a.Links):len(a.Links)], Link{Rel: "enclosure", Href: at.URL, Type: at.MIMEType, Title: at.Title, Length: length})
		}
	}
	if d.Categories == nil {
		for _, tag := range d.Tags {
			a.Categories = append(a.Categories, Category{Term: tag})
		}
	}
	room := roomFor(size)
	a.Extensions = d.Extensions.within(room)
	people := [][]Person{a.Authors, a.Contributors}
	if a.Source != nil {
		a.Source.Extensions = a.Source.Extensions.within(room)
		people = append(people, a.Source.Authors)
	}
	for _, list := range people {
		for i := range list {
			list[i].Extensions = list[i].Extensions.within(room)
		}
	}
	return a
}
