package daemon

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
)

// goTypes matches what no error for users has.
var goTypes = regexp.MustCompile(`Go (value|struct)|\*?\w+\.\w+Error|map\[|\[\]\w|json:|invalid character|EOF`)

// People paste all kinds of URLs for that of a feed. The error says what is there, with the cure.
func TestDocumentsThatAreNoFeed(t *testing.T) {
	t.Parallel()
	const api = "; check the url, or ask the provider for that of the feed"
	for name, test := range map[string]struct {
		contentType, body, want string
		transient               bool
	}{
		"a home page with one feed": {
			"text/html; charset=utf-8", `<!doctype html><html><head><title>The  Shop</title><link rel="alternate" type="application/rss+xml" href="/rss">`,
			`an HTML page "The Shop" that names the feed SITE/rss, and no feed; set url to that`, false,
		},
		"a home page with several feeds": {
			"text/html", `<html><base href="/blog/"><link rel=alternate type=application/atom+xml href=atom><link rel="Alternate" type="application/feed+json" href="/feed.json"><link rel="alternate" type="application/json" href="/wp-json/1"><link rel=alternate type=application/atom+xml href=atom>`,
			`an HTML page that names 2 feeds, SITE/blog/atom, SITE/feed.json, and no feed; set url to one of them; 'feedbridge discover' shows`, false,
		},
		"a home page without a feed": {"text/html", "<!-- x -->\n<html><title>Shop</title>", `an HTML page "Shop", and no feed; check the url, or ask the provider for that of the feed; 'feedbridge discover --guess' tries`, false},
		"a login page":               {"text/html", `<html><title>Log in</title><form><input name=u><input type="PASSWORD" name=p></form>`, `a login page (HTML) "Log in", and no feed; set auth to the credentials`, false},
		"XHTML":                      {"application/xhtml+xml", `<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>T</title></head></html>`, `an HTML page "T", and no feed`, false},
		"an API's answer":            {"application/json", `{"data": [{"id": 1}], "page": 1, "a": 0, "b": 0, "c": 0, "d": 0}`, `JSON of an API with the members data, page, a, b, c, …, and no feed` + api, false},
		"an API's error":             {"application/json", `{"status": 401, "message": "Bad token"}`, `the answer of an API with the message "Bad token", and no feed; check the url, and whether the API wants credentials (auth)`, false},
		"a list of an API":           {"application/json", ` [{"id": 1, "title": "x"}]`, `a JSON list of objects with the members id, title, and no feed`, false},
		"a list of numbers":          {"application/json", `[1, 2]`, `a JSON list, and no feed`, false},
		"a JSON Feed":                {"application/feed+json", `{"version": "https://jsonfeed.org/version/2", "items": []}`, `a JSON Feed of another version than 1 and 1.1, or without items, and no feed; set url to an Atom or RSS feed`, false},
		"one CloudEvent":             {"application/cloudevents+json", `{"specversion": "1.0", "type": "x", "id": "1"}`, `JSON of an API with the members specversion, type, id, and no feed`, false},
		"an API's description":       {"application/json", `{"openapi": "3.1.0", "info": {}}`, `JSON of an API with the members openapi, info, and no feed`, false},
		"the index of a snapshot":    {"application/json", `{"id": "1", "createdAt": "2026-01-01T00:00:00Z", "pages": []}`, `the index of a snapshot, and no feed; set start to snapshot: and this url, and url to that of the feed`, false},
		"OPML":                       {"text/x-opml", `<?xml version="1.0" encoding="ISO-8859-1"?><opml version="2.0"><body/></opml>`, `a list of feeds (OPML), and no feed; set url to the xmlUrl of one of its outlines`, false},
		"a sitemap":                  {"application/xml", `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url/></urlset>`, `a sitemap, and no feed; it lists pages and not entries`, false},
		"SOAP":                       {"text/xml", `<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"/>`, `XML with the root element Envelope of http://schemas.xmlsoap.org/soap/envelope/, and no feed` + api, false},
		"AtomPub":                    {"application/atomsvc+xml", `<service xmlns="http://www.w3.org/2007/app"/>`, `a list of collections (AtomPub), and no feed; set url to the href`, false},
		"XML of something else":      {"application/xml", `<!-- x --><orders xmlns="urn:shop"><order/></orders>`, `XML with the root element orders of urn:shop, and no feed` + api, false},
		"XML without a namespace":    {"application/xml", `<orders/>`, `XML with the root element orders, and no feed`, false},
		"text":                       {"text/plain", "Service\nunavailable", `text that begins with "Service unavailable", and no feed` + api, false},
		"a secret in a text":         {"text/plain", "see https://x.example/?token=s3cret", `text that begins with "see https://x.example/?token=***", and no feed`, false},
		"a calendar":                 {"text/calendar", "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n", `text that begins with "BEGIN:VCALENDAR VERSION:2.0", and no feed`, false},
		"a playlist":                 {"audio/x-mpegurl", "#EXTM3U\n", `text that begins with "#EXTM3U", and no feed`, false},
		"a PDF":                      {"application/pdf", "%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", `binary data (application/pdf), and no feed` + api, false},
		"an image":                   {"image/png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", `binary data (image/png), and no feed`, false},
		"an archive":                 {"", "PK\x03\x04\x14\x00\x00\x00", `binary data (application/zip)`, false},
		"bytes":                      {"application/octet-stream", "\x00\x01\x02\xff\xfe\x00", `binary data (application/octet-stream), and no feed`, false},
		"events":                     {"text/event-stream", "data: 1\n\n", `a stream of events (Server-Sent Events), and no feed`, false},
		"an empty answer":            {"text/html", " \n", `an empty answer, and no feed; if it stays empty, check the url`, true},
		"a feed that breaks off":     {"application/xml", `<?xml version="1.0"?><rss version="2.`, `breaks off`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{test.contentType}
				_, _ = w.Write([]byte(test.body))
			}))
			t.Cleanup(server.Close)
			_, err := sourcesFor(t, server.URL+"/x").DetectFormat(t.Context())
			want := strings.ReplaceAll(test.want, "SITE", server.URL)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v\nwant %s", err, want)
			}
			if goTypes.MatchString(err.Error()) && !test.transient || errors.Is(err, feed.ErrPermanent) == test.transient {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A header Link names feeds, too: in the error, and to discover.
func TestFeedsOfTheHeader(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/feed" {
			_, _ = w.Write([]byte(`<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title></feed>`))
			return
		}
		w.Header().Set("Link", `</feed>; rel="Alternate"; type="application/atom+xml", </de>; rel=alternate; hreflang=de, `+
			`</other>; rel=alternate; type=application/atom+xml; anchor="/x", <>; rel=alternate; type=application/atom+xml, `+
			`</feed>; rel="up alternate"; type=application/rss+xml`)
		_, _ = w.Write([]byte("hello"))
	}))
	t.Cleanup(server.Close)
	_, err := sourcesFor(t, server.URL).DetectFormat(t.Context())
	if no, ok := errors.AsType[*NotFeedError](err); !ok || !slices.Equal(no.Feeds, []string{server.URL + "/feed"}) || !strings.Contains(err.Error(), "names the feed "+server.URL+"/feed, and no feed; set url to that") {
		t.Errorf("got %v", err)
	}
	found, err := sourcesFor(t, server.URL).Discover(t.Context(), false)
	if err != nil || len(found) != 1 || found[0].URL != server.URL+"/feed" || found[0].Title != "News" {
		t.Errorf("discovered %+v, %v", found, err)
	}
}

func sourcesFor(t *testing.T, url string) *Sources {
	t.Helper()
	f := config.Feed{Source: source.Defaults(), Format: "auto"}
	f.Source.URL = url
	sources, err := NewSources(f, SourceOptions{IDs: sink.NewIDs(10)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
