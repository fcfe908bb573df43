package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// List is a list of feeds: an OPML or YAML document in a file or at a URL.
type List struct {
	// URL or File is set.
	URL  string `yaml:"url"`
	File string `yaml:"file"`
	// Every is the wait between requests of URL: at least 10s. Default 5m.
	Every time.Duration `yaml:"every" default:"5m" min:"10s"`
	// Headers and Auth are for the request of URL, not for the feeds of the list.
	Headers []credential.Secret `yaml:"headers"`
	Auth    source.Auth         `yaml:"auth" doc:"Credentials that are sent to the origin of the list."`
	// Defaults are the values of the keys of the list's feeds.
	Defaults Defaults `yaml:"defaults" doc:"Values of the keys of the list's feeds, before those of feed_defaults."`
}

// Source configures the requests of the list.
func (l List) Source() source.Config {
	cfg := source.Defaults()
	cfg.URL, cfg.Headers, cfg.Auth, cfg.Limits.Page = l.URL, l.Headers, l.Auth, MaxList
	return cfg
}

// An Entry is a feed of a list.
type Entry struct {
	// Name is the name of the feed; empty if it is made from the URL.
	Name string
	URL  string
	// Line is the line of the entry in the list, from 1.
	Line int
	// Title is the title of the feed for people; empty if it has none.
	Title string
}

const (
	// MaxList is the size of the largest list, in bytes.
	MaxList = 16 << 20
	// maxYAMLMarks limits the lines, commas and brackets of a list in YAML, each of which can begin a node: a
	// document of 4 MiB with two million of them took 800 MiB of memory.
	maxYAMLMarks = 100_000
	// maxEntries is the number of feeds of the largest list.
	maxEntries = 100_000
	// maxDepth limits how deep outlines are nested. The parser keeps a stack of the open elements.
	maxDepth = 1_000
)

// ErrListTooLarge is the error of a list with more than [MaxList] bytes, in its encoding or in UTF-8.
var ErrListTooLarge = fmt.Errorf("the list has more than %d bytes; divide it into several", MaxList)

// ParseList returns the entries of an OPML or YAML document. Its error has the cure.
func ParseList(data []byte) (entries []Entry, err error) {
	if len(data) > MaxList {
		return nil, ErrListTooLarge
	}
	decoded, err := feedxml.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the list's encoding is %w; write it in UTF-8", err)
	}
	if data, err = io.ReadAll(io.LimitReader(decoded, MaxList+1)); err != nil {
		return nil, err
	}
	switch start := bytes.TrimSpace(data); {
	case len(data) > MaxList:
		return nil, ErrListTooLarge
	case len(start) == 0:
		return nil, errors.New("the list is empty; want OPML, or YAML with the URLs of feeds; an empty list is []")
	case start[0] == '<':
		entries, err = parseOPML(data)
	case countMarks(data) > maxYAMLMarks:
		return nil, fmt.Errorf("the list has more than %d lines, commas and brackets of YAML; divide it into several, or write it as OPML", maxYAMLMarks)
	default:
		entries, err = parseYAMLList(data)
	}
	if err == nil && len(entries) > maxEntries {
		err = fmt.Errorf("the list has more than %d feeds; divide it into several", maxEntries)
	}
	return entries, err
}

func countMarks(data []byte) (n int) {
	for _, mark := range []string{"\n", ",", "[", "{"} {
		n += bytes.Count(data, []byte(mark))
	}
	return n
}

// parseOPML returns the outlines that have a URL of a feed, of a document in UTF-8 whatever it declares. Entities of the document's own are not expanded.
func parseOPML(data []byte) (entries []Entry, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(data))
	decoder.Entity = xml.HTMLEntity
	decoder.CharsetReader = func(_ string, decoded io.Reader) (io.Reader, error) { return decoded, nil }
	for depth, hasRoot := 0, false; ; {
		token, err := decoder.Token()
		line, _ := decoder.InputPos()
		if err == io.EOF && hasRoot { //nolint:errorlint // only the bare value is a good end
			return entries, nil
		}
		if err != nil {
			if start := strings.ToLower(string(data[:min(len(data), 1000)])); strings.Contains(start, "<!doctype html") || strings.Contains(start, "<html") {
				return nil, notOPML("html")
			}
			return nil, malformedOPML(line, err)
		}
		switch e := token.(type) {
		case xml.EndElement:
			depth--
		case xml.StartElement:
			if depth++; depth == 1 && e.Name.Local != "opml" {
				return nil, notOPML(e.Name.Local)
			}
			hasRoot = true
			if depth > maxDepth+2 {
				return nil, fmt.Errorf("line %d: outlines are nested more than %d deep; write the feeds side by side", line, maxDepth)
			}
			if e.Name.Local != "outline" {
				continue
			}
			entry, text := Entry{Line: line}, ""
			for _, a := range e.Attr {
				switch strings.ToLower(a.Name.Local) {
				case "xmlurl":
					entry.URL = strings.TrimSpace(a.Value)
				case "name":
					entry.Name = strings.TrimSpace(a.Value)
				case "title":
					entry.Title = strings.TrimSpace(a.Value)
				case "text":
					text = strings.TrimSpace(a.Value)
				}
			}
			if entry.Title = cmp.Or(entry.Title, text); entry.URL != "" {
				entries = append(entries, entry)
			}
			if len(entries) > maxEntries {
				return entries, nil
			}
		}
	}
}

// malformedOPML returns the error about a document that cannot be parsed.
func malformedOPML(line int, err error) error {
	text := err.Error()
	if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok {
		text = syntax.Msg
	}
	switch {
	case text == "invalid UTF-8":
		text += `: declare its encoding, as by <?xml version="1.0" encoding="windows-1252"?>`
	case strings.HasPrefix(text, "invalid character entity"):
		text += ": write its text in its place, since entities that a list declares are not read"
	}
	return fmt.Errorf("line %d: not OPML: %s", line, text)
}

// notOPML returns the error about a document with another root.
func notOPML(root string) error {
	switch strings.ToLower(root) {
	case "html":
		return errors.New("this is an HTML page, not a list; want the URL of its OPML document")
	case "rss", "feed", "rdf":
		return errors.New("this is a feed, not a list of feeds; name it in feeds")
	}
	return fmt.Errorf("this is an XML document with the root element %q; want OPML", root)
}

// FormatOPML returns a list of feeds as OPML 2.0. [ParseList] reads it as the same entries, but for their lines.
func FormatOPML(entries []Entry) ([]byte, error) {
	type outline struct {
		Type  string `xml:"type,attr"`
		Text  string `xml:"text,attr"`
		Title string `xml:"title,attr"`
		Name  string `xml:"name,attr"`
		URL   string `xml:"xmlUrl,attr"`
	}
	list := struct {
		XMLName  xml.Name  `xml:"opml"`
		Version  string    `xml:"version,attr"`
		Title    string    `xml:"head>title"`
		Outlines []outline `xml:"body>outline"`
	}{Version: "2.0", Title: "Feeds of feedbridge"}
	for _, e := range entries {
		// Readers of OPML expect the type rss for feeds of all formats.
		list.Outlines = append(list.Outlines, outline{"rss", e.Title, e.Title, e.Name, e.URL})
	}
	text, err := xml.MarshalIndent(list, "", "  ")
	return slices.Concat([]byte(xml.Header), bytes.ReplaceAll(text, []byte("></outline>"), []byte("/>")), []byte("\n")), err
}

// parseYAMLList returns the items of a list of URLs, or of mappings with url and name. No other key is read: who
// writes a list must not read secrets of this machine by file: or ${VAR}.
func parseYAMLList(data []byte) (entries []Entry, err error) {
	doc, parseErr := parseYAML(data)
	switch {
	case parseErr != nil:
		return nil, fmt.Errorf("line %d: %s", max(1, parseErr.Line), strings.Replace(parseErr.Text, emptyFile, "the list is empty; an empty list is []", 1))
	case doc.Kind != yaml.SequenceNode:
		return nil, fmt.Errorf(`line %d: want a list, such as "- https://shop.example.com/feed", or OPML`, max(1, doc.Line))
	}
	for _, item := range doc.Content {
		entry := Entry{Line: item.Line}
		if item.Kind == yaml.ScalarNode {
			entry.URL = item.Value
		}
		for i := 0; item.Kind == yaml.MappingNode && i < len(item.Content); i += 2 {
			switch value := item.Content[i+1]; {
			case value.Kind != yaml.ScalarNode:
			case item.Content[i].Value == "url":
				entry.URL = value.Value
			case item.Content[i].Value == "name":
				entry.Name = value.Value
			}
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// maxListedName is the length of the longest name that is made from a URL.
const maxListedName = 100

// ListedName makes a name of a URL in a list: of its host and path. A query, or the end of a long name, is
// replaced by a part of its hash: it may have secrets.
func ListedName(rawURL string) string {
	name := feedName(rawURL)
	if u, err := url.Parse(rawURL); err == nil && u.RawQuery != "" {
		name += hashSuffix(u.RawQuery)
	}
	if len(name) > maxListedName {
		name = cutName(name) + hashSuffix(rawURL)
	}
	return name
}

// DistinctName is [ListedName] for a URL whose name belongs to another one: the name ends with a hash of the URL.
func DistinctName(rawURL string) string { return cutName(feedName(rawURL)) + hashSuffix(rawURL) }

func hashSuffix(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "-" + hex.EncodeToString(sum[:4])
}

// cutName returns the part of a name before which a hash has room.
func cutName(name string) string {
	return strings.TrimRight(name[:min(len(name), maxListedName-9)], "-")
}

// WithLists returns the configuration with the feeds of lists besides its own, and the errors of the entries that
// were left out. It does not read the file and the variables again.
func (c *Config) WithLists(lists map[string][]Entry) (*Config, Errors) {
	if c.loaded == nil {
		return c, nil
	}
	l := c.loaded.clone()
	l.addListed(c.FeedsFrom, lists)
	cfg := l.complete()
	for name := range l.refusedFeeds {
		delete(cfg.Feeds, name)
		delete(l.listOf, name)
	}
	cfg.ListOf, cfg.loaded, cfg.titles = l.listOf, c.loaded, l.titles
	return cfg, l.refused
}

// addListed adds the entries of lists. The result does not depend on the order of entries with the same name: none
// of them is added, so that no topic ever gets the entities of another feed.
func (l *loader) addListed(configured map[string]List, lists map[string][]Entry) {
	type listed struct {
		list string
		Entry
	}
	byName, seen, order := map[string][]listed{}, map[string]bool{}, []string{}
	refuse := func(e listed, text string) {
		l.refused = append(l.refused, &Error{Source: "feeds_from." + e.list, Line: e.Line, Text: text})
	}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		if _, ok := configured[list]; !ok {
			continue
		}
		repeated := 0
		for _, entry := range lists[list] {
			e := listed{list, entry}
			if err := source.CheckURL(e.URL); err != nil {
				refuse(e, "url: "+err.Error())
				continue
			}
			if seen[e.URL] {
				repeated++
				continue
			}
			seen[e.URL] = true
			if e.Name == "" {
				e.Name = ListedName(e.URL)
			}
			switch {
			case !nameForm.MatchString(e.Name):
				refuse(e, fmt.Sprintf("%q: %s", e.Name, badNameText(e.Name)))
			case l.locations.isSet(joinPath("feeds", e.Name)):
				refuse(e, fmt.Sprintf("the name %s belongs to a feed of the configuration; give the entry another one, by its key or attribute name", e.Name))
			default:
				if byName[e.Name] == nil {
					order = append(order, e.Name)
				}
				byName[e.Name] = append(byName[e.Name], e)
			}
		}
		if repeated > 0 {
			l.refused = append(l.refused, &Error{Source: "feeds_from." + list, Text: fmt.Sprintf("%d entries have the URL of another entry, of this list or of one before it; the first of each was taken", repeated)})
		}
	}
	for _, name := range order {
		entries := byName[name]
		if len(entries) > 1 {
			for _, e := range entries {
				refuse(e, fmt.Sprintf("the name %s is that of %d entries with different URLs, and none of them is read; give each a name, by its key or attribute name", name, len(entries)))
			}
			continue
		}
		e, path := entries[0], joinPath("feeds", name)
		l.listOf[name] = e.list
		if e.Title != "" {
			l.titles[name] = e.Title
		}
		l.locations.setLocation(path+".url", location{"feeds_from." + e.list, e.Line})
		l.values[path+".url"] = reflect.ValueOf(e.URL)
	}
}
