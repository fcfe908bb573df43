package feedxml

import (
	"bytes"
	"slices"
)

// usualPrefixes are the namespaces that feeds mean by prefixes which they forget to
// declare.
var usualPrefixes = map[string]string{
	"atom": AtomNamespace, "content": "http://purl.org/rss/1.0/modules/content/", "dc": "http://purl.org/dc/elements/1.1/",
	"dcterms": "http://purl.org/dc/terms/", "feedburner": "http://rssnamespace.org/feedburner/ext/1.0", "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
	"georss": "http://www.georss.org/georss", "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd", "media": "http://search.yahoo.com/mrss/",
	"podcast": "https://podcastindex.org/namespace/1.0", "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "slash": "http://purl.org/rss/1.0/modules/slash/",
	"sy": "http://purl.org/rss/1.0/modules/syndication/", "thr": "http://purl.org/syndication/thread/1.0", "wfw": "http://wellformedweb.org/CommentAPI/",
	"xlink": "http://www.w3.org/1999/xlink", "xsi": "http://www.w3.org/2001/XMLSchema-instance", "yt": "http://www.youtube.com/xml/schemas/2015",
}

// undeclaredURI begins the namespaces of prefixes that are not declared and not among
// the usual ones.
const undeclaredURI = "urn:undeclared-prefix:"

// DeclarePrefixes returns a well-formed element with a declaration for each prefix of
// an element or attribute in it that has none. Parsers that know namespaces refuse an
// undeclared prefix. The prefixes are in the order of their first use.
func DeclarePrefixes(b []byte) (declared []byte, prefixes []string) {
	if bytes.IndexByte(b, ':') < 0 {
		return b, nil
	}
	s := scanner{maxAttributes: len(b)}
	var (
		known []string // declared by the elements that are open
		marks []int    // how many of them were before each of these elements
		attrs []attr
		first tag
	)
	use := func(name []byte) {
		prefix, _ := cutPrefix(name)
		if prefix == nil || string(prefix) == "xml" || string(prefix) == "xmlns" || slices.Contains(known, string(prefix)) || slices.Contains(prefixes, string(prefix)) {
			return
		}
		prefixes = append(prefixes, string(prefix))
	}
	for i := 0; i < len(b); {
		n := bytes.IndexByte(b[i:], '<')
		if n < 0 || i+n+1 == len(b) {
			break
		}
		i += n
		if b[i+1] == '/' && len(marks) > 0 {
			known, marks = known[:marks[len(marks)-1]], marks[:len(marks)-1]
		}
		if !isNameStart[b[i+1]] {
			i += skipToken(b[i:])
			continue
		}
		t, err := s.scanTag(b, i)
		if err != nil || t.end == 0 {
			return b, nil
		}
		if i == 0 {
			first = t
		}
		mark := len(known)
		attrs = attributes(attrs[:0], b, t)
		for _, a := range attrs {
			if prefix, ok := bytes.CutPrefix(a.name, []byte("xmlns:")); ok {
				known = append(known, string(prefix))
			}
		}
		use(b[i+1 : t.nameEnd])
		for _, a := range attrs {
			use(a.name)
		}
		if t.empty {
			known = known[:mark]
		} else {
			marks = append(marks, mark)
		}
		i = t.end
	}
	if len(prefixes) == 0 {
		return b, nil
	}
	declared = append(make([]byte, 0, len(b)+100*len(prefixes)), b[:first.nameEnd]...)
	for _, prefix := range prefixes {
		uri, ok := usualPrefixes[prefix]
		if !ok {
			uri = undeclaredURI + prefix
		}
		declared = appendAttr(declared, "xmlns:"+prefix, uri)
	}
	return append(declared, b[first.nameEnd:]...), prefixes
}
