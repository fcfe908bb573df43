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
	case strings.HasPrefix(text, "invalid character entity") && strings.Contains(text, "(no semicolon)"):
		text += ": write & as &amp;, also in URLs"
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
// were left out. It does not read the file and the variables again. The feeds of lists in running, which is nil at a
// start, keep their names and topics.
func (c *Config) WithLists(lists map[string][]Entry, running *Config) (*Config, Errors) {
	if c.loaded == nil {
		return c, nil
	}
	l := c.loaded.clone()
	l.addListed(c, running, lists)
	cfg := l.complete()
	for name := range l.refusedFeeds {
		delete(cfg.Feeds, name)
		delete(l.listOf, name)
	}
	cfg.ListOf, cfg.loaded, cfg.titles = l.listOf, c.loaded, l.titles
	return cfg, l.refused
}

// hasEntry reports whether the configuration has an entry of a list. It may be called on nil.
func (c *Config) hasEntry(list string, e Entry) bool {
	return c != nil && c.ListOf[e.Name] == list && c.Feeds[e.Name].Source.URL == e.URL
}

// addListed adds the entries of lists. Incumbents, the entries that running has from the same list with the same name
// and URL, come before all others: no new entry stops a running feed, or moves it to another topic, as long as its
// list has it. Of other entries with the same name none is added, so that no topic gets the entities of another feed,
// whatever their order. Of those with the same URL the first list's is.
//
// A copy that starts has no incumbents, so the other members of its fleet may have feeds that it refuses, or run the
// URL under another name. That moves nothing until most members have restarted: the members agree on the version of
// each list that most have, and of two versions with equally many votes on the one with more feeds. Until then a URL
// in two lists may be copied to the topics of both.
func (l *loader) addListed(c, running *Config, lists map[string][]Entry) {
	type listed struct {
		list string
		Entry
	}
	refuse := func(e listed, text string) {
		l.refused = append(l.refused, &Error{Source: "feeds_from." + e.list, Line: e.Line, Text: text})
	}
	own := map[string]string{} // the feeds of the configuration itself, by URL
	for _, name := range l.locations.namesBelow("feeds") {
		own[c.Feeds[name].Source.URL] = name
	}
	var incumbents, others []listed
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		if _, ok := c.FeedsFrom[list]; !ok {
			continue
		}
		for _, e := range lists[list] {
			e.Name = cmp.Or(e.Name, ListedName(e.URL))
			if running.hasEntry(list, e) {
				incumbents = append(incumbents, listed{list, e})
			} else {
				others = append(others, listed{list, e})
			}
		}
	}
	byName, seen, repeated, order := map[string][]listed{}, map[string]bool{}, map[string]int{}, []string{}
	for n, e := range slices.Concat(incumbents, others) {
		err, named := source.CheckURL(e.URL), byName[e.Name]
		switch {
		case err != nil:
			refuse(e, "url: "+err.Error())
		case own[e.URL] != "":
			refuse(e, fmt.Sprintf("the feed %s of the configuration has this URL too; remove one of the two", own[e.URL]))
		case seen[e.URL]:
			repeated[e.list]++
		case !nameForm.MatchString(e.Name):
			refuse(e, fmt.Sprintf("%q: %s", e.Name, badNameText(e.Name)))
		case l.locations.isSet(joinPath("feeds", e.Name)):
			refuse(e, fmt.Sprintf("the name %s belongs to a feed of the configuration; give the entry another one, by its key or attribute name", e.Name))
		case l.incumbents[e.Name]:
			refuse(e, fmt.Sprintf("the name %s belongs to a feed of the list %s, which had it before; give the entry another one, by its key or attribute name", e.Name, named[0].list))
		default:
			seen[e.URL] = true
			if l.incumbents[e.Name] = n < len(incumbents); named == nil {
				order = append(order, e.Name)
			}
			byName[e.Name] = append(named, e)
		}
	}
	for _, list := range slices.Sorted(maps.Keys(repeated)) {
		entries := "1 entry has"
		if n := repeated[list]; n > 1 {
			entries = fmt.Sprintf("%d entries have", n)
		}
		refuse(listed{list: list}, entries+" the URL of another entry, of this list or another one; the entry that was used before stays, or else the first is used")
	}
	for _, name := range order {
		entries := byName[name]
		if len(entries) > 1 {
			for _, e := range entries {
				refuse(e, fmt.Sprintf("%d entries with different URLs have the name %s, and none of them is read; give each a name, by its key or attribute name", len(entries), name))
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
