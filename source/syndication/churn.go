package syndication

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"hash/maphash"
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

// changedElements returns the local names of the elements whose own text or attributes differ in
// two versions of an entry, without the counters.
func changedElements(a, b []byte) (names []string) {
	was, is := ownTexts(a), ownTexts(b)
	for path, text := range is {
		if other, ok := was[path]; !ok || text != other {
			names = append(names, path.name.Local)
		}
		delete(was, path)
	}
	for path := range was {
		names = append(names, path.name.Local)
	}
	return names
}

// elementPath identifies an element of an entry: by the elements around it and its name, and by its number
// among those of the same path. The elements around it are hashed, because a path in full may be as long as
// the entry.
type elementPath struct {
	around uint64
	name   xml.Name
	number int
}

var pathSeed = maphash.MakeSeed()

// ownTexts returns the attributes and the text of each element within an entry.
func ownTexts(body []byte) map[elementPath]string {
	texts, count := map[elementPath]string{}, map[elementPath]int{}
	var open []elementPath
	d := xml.NewDecoder(bytes.NewReader(body))
	d.Strict, d.Entity = false, xml.HTMLEntity
	for {
		token, err := d.Token()
		if err != nil {
			return texts
		}
		switch token := token.(type) {
		case xml.StartElement:
			p := elementPath{name: token.Name}
			if len(open) > 0 {
				p.around = maphash.Comparable(pathSeed, open[len(open)-1])
			}
			count[p]++
			p.number = count[p]
			if open = append(open, p); len(open) > 1 && !feedxml.IsCounter(token.Name) {
				texts[p] = fmt.Sprint(token.Attr)
			}
		case xml.EndElement:
			open = open[:max(len(open)-1, 0)]
		case xml.CharData:
			if p := open; len(p) > 1 {
				if _, counts := texts[p[len(p)-1]]; counts {
					texts[p[len(p)-1]] += strings.TrimSpace(string(token))
				}
			}
		}
	}
}
