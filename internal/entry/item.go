package entry

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/internal/jsonpage"
)

// JSONFeed is the namespace of the members of a JSON Feed in extensions.
const JSONFeed = "https://jsonfeed.org/version/1.1"

// ReadItem reads an item of a JSON Feed, whose relative references start from base. Members that a
// Document lacks, or that have another type than in JSON Feed 1.1, become extensions, so that nothing is lost. It returns
// nil if the item is no object.
func ReadItem(raw []byte, base string) *Document {
	members, _ := jsonpage.Members(raw)
	if members == nil {
		return nil
	}
	d := &itemReader{room: roomFor(len(raw))}
	decodeMember(members, customName, &d.Document) // of a feed that feedbridge serves
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"id", &d.ID},
		{"url", &d.URL},
		{"title", &d.Title},
		{"content_html", &d.ContentHTML},
		{"content_text", &d.ContentText},
		{"summary", &d.Summary},
		{"image", &d.Image},
		{"language", &d.Language},
		{"date_published", &d.DatePublished},
		{"date_modified", &d.DateModified},
	} {
		decodeMember(members, f.name, f.to)
	}
	d.URL = d.resolve(base, d.URL)
	d.Image = d.resolve(base, d.Image)
	for name, date := range map[string]*string{"date_published": &d.DatePublished, "date_modified": &d.DateModified} {
		if text, ok := FormatTime(*date); ok {
			*date = text
		} else if *date != "" {
			d.keepMember(name, mustJSON(*date))
			*date = ""
		}
	}
	var external string
	if decodeMember(members, "external_url", &external); external != "" && d.Links == nil {
		external = d.resolve(base, external)
		if d.URL != "" {
			d.Links = append(d.Links, Link{Rel: "alternate", Href: d.URL})
		}
		d.Links = append(d.Links, Link{Rel: "related", Href: external})
	}
	// The author of version 1 counts if there are none of version 1.1.
	if decodeMember(members, "authors", &d.Authors); d.Authors == nil {
		var author Person
		if decodeMember(members, "author", &author); author.Name+author.URI+author.Avatar != "" {
			d.Authors = []Person{author}
		}
	}
	d.Authors = slices.DeleteFunc(d.Authors, func(p Person) bool { return p.Name+p.URI+p.Avatar == "" })
	decodeMember(members, "tags", &d.Tags)
	d.Tags = slices.DeleteFunc(d.Tags, func(tag string) bool { return tag == "" })
	d.readAttachments(members, base)
	for name, value := range members {
		if string(value) != "null" {
			d.keepMember(name, value)
		}
	}
	return &d.Document
}

// customName is the name of the member of an item with the fields that JSON Feed does not have.
const customName = "_feedbridge"

// itemNames are the fields of a Document that an item of a JSON Feed has.
var itemNames = []string{
	"id", "url", "title", "content_html", "content_text", "summary", "image", "date_published", "date_modified", "language", "authors", "tags", "attachments",
}

// Item returns the document as an item of a JSON Feed. Fields that an item does not have are in a member of its own,
// from which ReadItem restores them.
func (d *Document) Item() []byte {
	members, _ := jsonpage.Members(d.Marshal())
	item, rest := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for name, value := range members {
		if slices.Contains(itemNames, name) {
			item[name] = value
		} else {
			rest[name] = value
		}
	}
	if rest["source"] == nil && rest["feed"] != nil {
		rest["source"] = rest["feed"]
	}
	delete(rest, "feed")
	if len(d.Links) == 2 && reflect.DeepEqual(d.Links, []Link{{Rel: "alternate", Href: d.URL}, {Rel: "related", Href: d.Links[1].Href}}) {
		item["external_url"] = mustJSON(d.Links[1].Href)
		delete(rest, "links")
	}
	if own := d.Extensions[JSONFeed]; own != nil {
		others := maps.Clone(d.Extensions)
		others[JSONFeed] = maps.Clone(own)
		for name, all := range own {
			value := all[0].Value
			if value == nil && json.Valid([]byte(all[0].Text)) {
				value = json.RawMessage(all[0].Text)
			}
			if value != nil && item[name] == nil {
				item[name] = value
				delete(others[JSONFeed], name)
			}
		}
		if len(others[JSONFeed]) == 0 {
			delete(others, JSONFeed)
		}
		if delete(rest, "extensions"); len(others) > 0 {
			rest["extensions"] = mustJSON(others)
		}
	}
	if item["content_html"] == nil && item["content_text"] == nil {
		item["content_text"] = json.RawMessage(`""`) // an item has one of them
	}
	if len(rest) > 0 {
		item[customName] = mustJSON(rest)
	}
	return mustJSON(item)
}

// itemReader reads an item into a Document.
type itemReader struct {
	Document
	*room
}

// decodeMember decodes a member that has exactly the type of to, and removes it from members.
func decodeMember[T any](members map[string]json.RawMessage, name string, to *T) {
	raw, ok := members[name]
	if !ok {
		return
	}
	var value T
	in := json.NewDecoder(bytes.NewReader(raw))
	in.DisallowUnknownFields()
	if in.Decode(&value) == nil {
		*to = value
		delete(members, name)
	}
}

// readAttachments reads the attachments. Sizes and durations may be written as strings. If anything else is unusual,
// the extensions have the original too.
func (d *itemReader) readAttachments(members map[string]json.RawMessage, base string) {
	var all []json.RawMessage
	raw := members["attachments"]
	if json.Unmarshal(raw, &all) != nil {
		return
	}
	whole := true
	for _, one := range all {
		fields, _ := jsonpage.Members(one)
		var a attachment
		decodeMember(fields, "url", &a.URL)
		decodeMember(fields, "mime_type", &a.MIMEType)
		decodeMember(fields, "title", &a.Title)
		size := readNumber(fields, "size_in_bytes")
		a.SizeInBytes, a.Duration = int64(size), readNumber(fields, "duration_in_seconds")
		whole = whole && len(fields) == 0 && a.URL != "" && size < 1<<53
		if a.URL = d.resolve(base, a.URL); a.URL != "" {
			d.Attachments = append(d.Attachments, a)
		}
	}
	if whole {
		delete(members, "attachments")
	}
}

// readNumber returns a member that is a number, as such or as a string, and not negative, and removes it from members.
func readNumber(members map[string]json.RawMessage, name string) float64 {
	n, err := strconv.ParseFloat(strings.Trim(string(members[name]), `"`), 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0
	}
	delete(members, name)
	return n
}

// keepMember adds a member to the extensions.
func (d *itemReader) keepMember(name string, value json.RawMessage) {
	el := Element{Value: value}
	var any any
	if err := json.Unmarshal(value, &any); err != nil {
		// A number that no float64 can hold would make the whole body unreadable for most programs.
		el = Element{Text: string(value)}
	}
	d.Extensions.elements(JSONFeed)[strings.ToValidUTF8(name, "\uFFFD")] = []Element{el}
}

// resolve is [room.resolve] for a reference that may be missing.
func (d *itemReader) resolve(base, ref string) string {
	if ref == "" {
		return ""
	}
	return d.room.resolve(base, ref)
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	return b
}
