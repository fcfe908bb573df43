package entry

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// addPermalink adds the guid as a link, if it is a page: as that of the item, or as its bookmark if it has another.
func (a *fieldReader) addPermalink() {
	switch l, ok := a.FindLink("alternate"); {
	case a.permalink == "" || l.Href == a.permalink:
	case ok:
		a.Links = append(a.Links, Link{Rel: "bookmark", Href: a.permalink})
	default:
		a.Links = append(a.Links, Link{Rel: "alternate", Href: a.permalink})
	}
}

// modules are the prefixes of the modules of RSS whose elements are fields.
var modules = map[string]string{
	DCSpace: "dc:", dctermsSpace: "dcterms:", ContentSpace: "content:", strings.TrimSuffix(ContentSpace, "/"): "content:", xhtmlSpace: "xhtml:",
}

// rssFields are the elements of RSS that are fields.
var rssFields = map[string]bool{
	"title": true, "dc:title": true, "description": true, "dc:description": true, "content:encoded": true, "dc:rights": true,
	"enclosure": true, "link": true, "guid": true, "comments": true, "author": true, "dc:creator": true, "dc:contributor": true,
	"category": true, "dc:subject": true, "pubDate": true, "dcterms:issued": true, "dcterms:created": true, "dc:date": true,
	"dcterms:modified": true, "source": true, "xhtml:body": true, "body": true, "fullitem": true,
}

// isStandIn reports whether an element is a field only if the entry has no other for it.
func isStandIn(name string) bool {
	return name == "created" || strings.HasPrefix(name, "dc:") && name != "dc:creator" && name != "dc:contributor" && name != "dc:subject" || strings.HasPrefix(name, "dcterms:")
}

// postpone reads an element that [fieldReader.setStandIns] uses.
func (a *fieldReader) postpone(s *xmlcopy.Scanner, name, base string) error {
	t := s.Tag
	el, err := readElement(s, t.Space, a.room)
	a.standIns = append(a.standIns, standIn{name, base, t, el})
	return err
}

// setStandIns sets the fields that the entry lacks to the texts of the elements that were postponed. The others are
// extensions. When an entry was created is least of all the date of its publication.
func (a *fieldReader) setStandIns() {
	for _, created := range []bool{false, true} {
		for _, in := range a.standIns {
			switch {
			case strings.HasSuffix(in.name, "created") != created:
			case a.has(in.name) || in.el.Children != nil || strings.TrimSpace(in.el.Text) == "":
				a.Extensions.add(a.room, in.tag.Space, in.tag.Local, in.el)
			default:
				a.setRSS(&in.tag, in.name, in.el.Text, "", in.base)
			}
		}
	}
}

// addFromExtensions sets authors, summary and categories of an entry that has none to those of podcasts and videos,
// which stay extensions.
func (a *fieldReader) addFromExtensions() {
	podcast, media := a.Extensions.in(itunesSpace), a.Extensions.in(mediaSpace)
	if name := textOf(podcast["author"]); name != "" && a.Authors == nil {
		a.Authors = []Person{ReadPerson(name)}
	}
	if a.Summary == nil {
		text := cmp.Or(textOf(podcast["summary"]), textOf(media["description"]))
		for _, group := range media["group"] {
			for _, el := range group.Children {
				if el.Name == "description" && el.Namespace == nil {
					setIfEmpty(&text, strings.TrimSpace(el.Text))
				}
			}
		}
		keepProse(&a.Summary, text, "", LooksLikeHTML(text))
	}
	if a.Categories != nil {
		return
	}
	add := func(term, scheme, label string) {
		if term = strings.TrimSpace(term); term != "" {
			a.Categories = append(a.Categories, Category{term, scheme, label})
		}
	}
	for _, el := range media["category"] {
		add(el.Text, el.Attributes["scheme"], el.Attributes["label"])
	}
	for _, el := range podcast["category"] {
		for _, el := range append([]Element{el}, el.Children...) {
			add(el.Attributes["text"], "", "")
		}
	}
	for word := range strings.SplitSeq(textOf(podcast["keywords"]), ",") {
		add(word, "", "")
	}
}

// has reports whether the field of an element that may occur once is set.
func (a *fieldReader) has(name string) bool {
	switch name {
	case "dc:title":
		return a.Title != nil
	case "dc:description":
		return a.Summary != nil
	case "content:encoded", "xhtml:body":
		return a.Content != nil
	case "dc:rights":
		return a.Rights != nil
	case "dcterms:issued", "dcterms:created", "created":
		return a.Published != ""
	case "dc:date", "dcterms:modified":
		return a.Updated != ""
	}
	return false
}

// readRSS reads an element of RSS or of one of its modules. name is its local name, with
// the usual prefix of its namespace if that is a module's.
func (a *fieldReader) readRSS(s *xmlcopy.Scanner, t *xmlcopy.Tag, name, base string) error {
	if name == "enclosure" {
		return a.readEnclosure(s, t, base)
	}
	text, markup, err := s.InnerContent()
	if err == nil {
		a.setRSS(t, name, text, markup, base)
	}
	return err
}

// setRSS sets the field of an element of RSS. markup is the content as HTML if there are elements in it.
func (a *fieldReader) setRSS(t *xmlcopy.Tag, name, text, markup, base string) {
	switch name {
	case "title", "dc:title":
		keepProse(&a.Title, text, markup, LooksLikeHTML(text))
	case "description", "dc:description":
		keepProse(&a.Summary, text, markup, true)
	case "content:encoded", "fullitem":
		keepProse(&a.Content, text, markup, true)
	case "xhtml:body", "body":
		keepProse(&a.Content, "", withoutDiv(markup, text), true)
	case "dc:rights":
		keepProse(&a.Rights, text, markup, false)
	case "source":
		if title := strings.TrimSpace(text); a.Source == nil && title+t.Attr("url") != "" {
			a.Source = &Feed{Title: title, URL: a.resolve(base, t.Attr("url"))}
		}
	default:
		if value := strings.TrimSpace(text); value != "" {
			a.addRSSValue(t, name, value, base)
		}
	}
}

// readEnclosure reads an enclosure of RSS. What a link has no field for is an extension.
func (a *fieldReader) readEnclosure(s *xmlcopy.Scanner, t *xmlcopy.Tag, base string) error {
	el, err := readElement(s, t.Space, a.room)
	if err != nil {
		return err
	}
	if href := t.Attr("url"); href != "" {
		a.Links = append(a.Links, Link{Rel: "enclosure", Href: a.resolve(base, href), Type: t.Attr("type"), Length: t.Attr("length")})
		for _, name := range []string{"url", "type", "length"} {
			delete(el.Attributes, name)
		}
	}
	if len(el.Attributes) > 0 || el.Children != nil || strings.TrimSpace(el.Text) != "" {
		a.Extensions.add(a.room, t.Space, t.Local, el)
	}
	return nil
}

// keepProse sets an element of RSS that was not set before. markup is the content as
// HTML if there are elements in it.
func keepProse(at **Prose, text, markup string, isHTML bool) {
	switch {
	case *at != nil || strings.TrimSpace(text+markup) == "":
	case markup != "":
		*at = &Prose{markup, true}
	default:
		*at = &Prose{text, isHTML}
	}
}

// addRSSValue adds an element of RSS that contains a short text.
func (a *fieldReader) addRSSValue(t *xmlcopy.Tag, name, value, base string) {
	switch name {
	case "link":
		a.Links = append(a.Links, Link{Rel: "alternate", Href: a.resolve(base, value)})
	case "guid":
		setIfEmpty(&a.ID, value)
		if is := t.Attr("isPermaLink"); is == "true" || is != "false" && strings.Contains(value, "://") {
			setIfEmpty(&a.permalink, a.resolve(base, value))
		}
	case "comments":
		a.Links = append(a.Links, Link{Rel: "replies", Href: a.resolve(base, value)})
	case "author", "dc:creator":
		a.Authors = append(a.Authors, ReadPerson(value).withExtra(t))
	case "dc:contributor":
		a.Contributors = append(a.Contributors, ReadPerson(value).withExtra(t))
	case "category", "dc:subject":
		a.Categories = append(a.Categories, Category{Term: value, Scheme: t.Attr("domain"), Label: t.AttrIn(ExtraSpace, "label")})
	case "pubDate", "dcterms:issued", "dcterms:created", "created":
		a.keepDate(&a.Published, t, value)
	case "dc:date", "dcterms:modified":
		a.keepDate(&a.Updated, t, value)
	}
}

var (
	withName  = regexp.MustCompile(`^(\S+@\S+)\s*\((.*)\)$`) // RSS: a@b.example (Name)
	withEmail = regexp.MustCompile(`^(.+?)\s*[<(]([^\s<>()]+@[^\s<>()]+)[>)]$`)
)

// ReadPerson reads a person in the forms that RSS has.
func ReadPerson(text string) Person {
	if m := withName.FindStringSubmatch(text); m != nil {
		return Person{Name: strings.TrimSpace(m[2]), Email: m[1]}
	}
	if m := withEmail.FindStringSubmatch(text); m != nil {
		return Person{Name: m[1], Email: m[2]}
	}
	if strings.Contains(text, "@") && !strings.ContainsAny(text, " /") {
		return Person{Name: text, Email: text}
	}
	return Person{Name: text}
}

// withExtra returns the person with the attributes in [ExtraSpace].
func (p Person) withExtra(t *xmlcopy.Tag) Person {
	setIfEmpty(&p.Email, t.AttrIn(ExtraSpace, "email"))
	setIfEmpty(&p.URI, t.AttrIn(ExtraSpace, "uri"))
	return p
}

// markup is what text has that is meant as HTML.
var markup = regexp.MustCompile(`&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z]+\d*);|</?[a-zA-Z][^>]*>`)

// LooksLikeHTML reports whether a title of RSS, which may be text or HTML, is HTML.
func LooksLikeHTML(text string) bool { return markup.MatchString(text) }
