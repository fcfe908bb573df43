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
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

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

// parseOPML returns the outlines that have a URL of a feed, of a document in UTF-8 whatever it declares. Entities of the
// document's own are not expanded.
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
