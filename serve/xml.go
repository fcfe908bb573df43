package serve

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// The namespaces of documents. All but Atom's are declared where they are used: a
// reader that takes an entry out of a document would have to carry those along
// that the document declares.
const (
	historySpace = "http://purl.org/syndication/history/1.0"
)

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var hasScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[^ <>"{}|\\^` + "`" + `]+$`)

// toIRI returns an ID as an IRI, as Atom demands. An ID that is no IRI becomes the URL of
// a Content-ID (RFC 2392).
func toIRI(id string) string {
	if hasScheme.MatchString(id) {
		return id
	}
	return "cid:" + url.PathEscape(strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">"))
}

// isTextual reports whether bodies of a media type are text for people to read, if
// they are UTF-8.
func isTextual(media string) bool {
	switch media {
	case "application/json", "application/javascript", "application/yaml", "application/x-yaml", "application/toml", "application/x-ndjson", "application/jsonl":
		return true
	}
	return strings.HasPrefix(media, "text/") && !isXML(media) || strings.HasSuffix(media, "+json")
}

func isXML(media string) bool {
	return strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml")
}

// inBase64 is content that XML cannot carry.
func inBase64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
