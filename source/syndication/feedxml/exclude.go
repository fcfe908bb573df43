package feedxml

import (
	"encoding/xml"
	"slices"
)

// counters are elements that many servers change whenever an entry is read or answered. They are
// not part of the hash of an entry.
var counters = []xml.Name{
	{Space: "http://search.yahoo.com/mrss/", Local: "statistics"},
	{Space: "http://search.yahoo.com/mrss/", Local: "starRating"},
	{Space: "http://purl.org/rss/1.0/modules/slash/", Local: "comments"},
	{Space: "http://purl.org/syndication/thread/1.0", Local: "total"},
}

// IsCounter reports whether a name is one of the counters that never count as a change of an entry.
func IsCounter(name xml.Name) bool { return slices.Contains(counters, name) }

// exclusions has the names of the elements that are not part of the hash of an entry: those of
// [Options.HashWithout], and then the counters.
type exclusions struct {
	names []xml.Name
	ends  [256]bool // the last bytes of the names
}

func newExclusions(own []xml.Name) exclusions {
	x := exclusions{names: append(slices.Clip(own), counters...)}
	for _, n := range x.names {
		x.ends[n.Local[len(n.Local)-1]] = true
	}
	return x
}

// mayExclude reports whether elements with that tag name may be excluded. It is called for each
// element, so it looks at the last byte first.
func (x *exclusions) mayExclude(name []byte) bool {
	if !x.ends[name[len(name)-1]] {
		return false
	}
	_, local := cutPrefix(name)
	return slices.ContainsFunc(x.names, func(n xml.Name) bool { return n.Local == string(local) })
}

// excluded is an element within an entry that may be excluded. Its positions count from the first
// byte of the entry.
type excluded struct {
	start, nameEnd int
	end            int // 0 while it is open
}

// find returns the parts of the entry b that are not part of its hash. outer is the scope of the entry. Namespaces are
// those that the entry or the element itself declares: declarations in between are not looked at.
func (x *exclusions) find(b []byte, all []excluded, outer *scope) (parts []span) {
	covered := 0
	for _, e := range all {
		prefix, local := cutPrefix(b[e.start+1 : e.nameEnd])
		uri := trimSpace(namespaceOf(b, prefix, e.start, outer))
		matches := func(n xml.Name) bool {
			return n.Local == string(local) && (n.Space == "*" || trimSpace(n.Space) == uri)
		}
		if slices.ContainsFunc(x.names, matches) && e.start >= covered {
			parts, covered = append(parts, span{len(b) - e.start, len(b) - e.end}), e.end
		}
	}
	return parts
}

// namespaceOf returns the namespace of a prefix in the element at b[at:].
func namespaceOf(b, prefix []byte, at int, outer *scope) string {
	name := "xmlns"
	if len(prefix) > 0 {
		name = "xmlns:" + string(prefix)
	}
	s := scanner{maxAttributes: len(b)}
	if t, err := s.scanTag(b, at); err == nil {
		for _, a := range attributes(nil, b, t) {
			if string(a.name) == name {
				return attrValue(a.value)
			}
		}
	}
	in, _ := outer.lookupPrefix(prefix)
	return in.uri
}
