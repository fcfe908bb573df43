package syndication

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// churn detects entries that change at every poll, such as those with counters. It compares the
// versions of one of them to name the elements that change.
type churn struct {
	// changed counts the entries of the present poll that are published again, and next is the
	// first of them, which becomes the sample if the present one has not changed.
	changed      int
	sample, next entryVersion
	// polls counts the consecutive polls in which the sample has changed, and elements are the first of
	// those in which its versions differ.
	polls    int
	elements map[string]bool
	again    bool // the sample has changed in the present poll
}

// entryVersion is a version of an entry.
type entryVersion struct {
	id   string
	body []byte
}

const (
	// churnPolls is the number of polls after which entries are reported.
	churnPolls = 3
	// longestSample is the length of the longest entry that can be a sample, in bytes.
	longestSample = 16 << 10
	// mostElements is the maximum number of elements that are named.
	mostElements = 30
)

// addChange records that an entry is published again.
func (c *churn) addChange(it *item) {
	c.changed++
	switch {
	case len(it.Body) > longestSample:
	case it.ID == c.sample.id:
		c.again = true
		for _, name := range changedElements(c.sample.body, it.Body) {
			if len(c.elements) < mostElements {
				c.elements[name] = true
			}
		}
		c.sample.body = it.Body
	case c.next.id == "":
		c.next = entryVersion{it.ID, it.Body}
	}
}

// endPoll ends a poll of a document with that many entries. It returns the names of the elements
// that change at every poll, if most entries do.
func (c *churn) endPoll(entries int) (names []string) {
	switch {
	case 2*c.changed < entries || c.changed == 0:
		*c = churn{}
		return nil
	case c.again:
		c.polls++
	default:
		*c = churn{sample: c.next, polls: 1, elements: map[string]bool{}}
	}
	c.changed, c.again, c.next = 0, false, entryVersion{}
	if c.polls >= churnPolls {
		names = slices.Sorted(maps.Keys(c.elements))
	}
	return names
}

// changedElements returns the local names of the elements whose own texts or attributes differ in
// two versions of an entry, without the counters.
func changedElements(a, b []byte) (names []string) {
	was, is := ownTexts(a), ownTexts(b)
	for name, text := range is {
		if other, ok := was[name]; !ok || text != other {
			names = append(names, name.Local)
		}
		delete(was, name)
	}
	for name := range was {
		names = append(names, name.Local)
	}
	return names
}

// ownTexts returns the attributes and the texts of the elements of each name within an entry.
func ownTexts(body []byte) map[xml.Name]string {
	texts := map[xml.Name]string{}
	var open []xml.Name
	d := xml.NewDecoder(bytes.NewReader(body))
	d.Strict, d.Entity = false, xml.HTMLEntity
	for {
		token, err := d.Token()
		if err != nil {
			return texts
		}
		text := ""
		switch token := token.(type) {
		case xml.StartElement:
			open = append(open, token.Name)
			text = fmt.Sprint(token.Attr)
		case xml.EndElement:
			open = open[:max(len(open)-1, 0)]
		case xml.CharData:
			text = strings.TrimSpace(string(token))
		}
		if last := len(open) - 1; text != "" && last > 0 && !feedxml.IsCounter(open[last]) {
			texts[open[last]] += text
		}
	}
}
