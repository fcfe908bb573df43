package conformance

import (
	"regexp"
	"slices"
	"strings"
)

// Requirement is a rule for producers of feeds.
type Requirement struct {
	// ID is a list of docs/cases and the number of a case in it, such as datareplication/25. It never changes
	// its meaning.
	ID string `json:"id"`
	// Section names the section of the specification that has the rule.
	Section string `json:"section"`
	// Level is MUST, MUST NOT, SHOULD, SHOULD NOT or MAY. A rule with MAY is advice.
	Level string `json:"level"`
	// Rule is a sentence about the producer.
	Rule string `json:"rule"`
	// formats names the formats with this rule, separated by blanks; "snapshot" means snapshots.
	formats string
	// needs is what the feed must have so that the rule can be broken: a dialect, pages, or one of the subjects.
	needs string
	// Kinds are the kinds of violation that prove that the rule is broken, separated by blanks.
	Kinds string `json:"-"`
	// Check is a check of [Prober] or [Pages] that decides it as well.
	Check string `json:"-"`
	// Note is the reason why nothing can decide it, or a remark.
	Note string `json:"-"`
}

const (
	both  = "atom rss rdf"
	paged = "pages" // more than one page
)

// Requirements lists all rules. docs/cases/rules.md has the same list, and the rules for readers.
var Requirements = []Requirement{
	{"datareplication/49", "feed: required headers", "MUST", "A page has a `Content-Type` of a multipart type with a boundary.", "datareplication", "", "missing_content_type invalid_content_type missing_boundary", "", ""},
	{"datareplication/44", "feed: required headers", "MUST", "A page has a `Last-Modified`, which is an HTTP date.", "datareplication", "", "missing_last_modified invalid_last_modified", "", ""},
	{"datareplication/47", "RFC 9110, 5.6.7", "MUST", "The weekday of a date is that of its day.", "datareplication", "", "wrong_weekday", "", ""},
	{"datareplication/41", "feed: required headers", "MUST", "A page has a `Link` with `rel=self`.", "datareplication", "", "missing_self_link", "", ""},
	{"datareplication/43", "feed: links", "MUST", "Links are written as RFC 8288 has them, and one link has a relation.", "datareplication", "", "bad_link repeated_link", "", ""},
	{"datareplication/25", "feed: links", "MUST", "The prev and next links of adjacent pages match.", "datareplication", paged, "links_asymmetric missing_next_link", "", ""},
	{"datareplication/23", "feed: links", "MUST", "The pages form no loop.", "datareplication", "", "loop", "", ""},
	{"datareplication/31", "feed: Last-Modified", "MUST", "The times of entities never decrease, over all pages.", "datareplication", "", "time_runs_back", "", ""},
	{"datareplication/26", "earlier draft", "MUST", "The times of pages never decrease.", "datareplication", paged, "page_time_runs_back", "", ""},
	{"datareplication/150", "earlier draft", "MUST", "A page has the time of its last entity; at least, it is not newer than the first entity of the next page.", "datareplication", "", "page_older_than_entity page_newer_than_entity page_newer_than_next", "", ""},
	{"datareplication/143", "RFC 9110, 8.8.2.1", "MUST NOT", "The `Last-Modified` of a page is not later than the `Date` of the response.", "datareplication", "", "", checkDate, ""},
	{"datareplication/20", "earlier draft", "SHOULD", "The entry point is the newest page.", "datareplication", "", "entry_point_not_newest", "", ""},
	{"datareplication/88", "earlier draft", "MUST", "Pages answer GET and HEAD, with the same header.", "datareplication", "", "head_refused head_differs", checkHead, ""},
	{"datareplication/67", "page format: entity", "MUST", "Content-IDs are unique within a feed.", "datareplication", "", "repeated_content_id", "", ""},
	{"datareplication/145", "feed: immutability", "MUST", "A page with a next link does not change. Only its prev link may be removed.", "datareplication", paged, "page_changed page_gone", checkClosed, "A change of a page that is neither read again nor the position is not seen: no reader requests it."},
	{"datareplication/146", "feed: immutability", "MUST", "The newest page changes only by entities after the others, and then by a next link.", "datareplication", "", "", checkOpen, ""},
	{"datareplication/76", "feed", "MUST", "A page has an entity at least.", "datareplication", "", "empty_page too_many_empty_pages", "", ""},
	{"datareplication/147", "RFC 9110, 13.1.2", "MUST", "A request with the current `ETag` in `If-None-Match` is answered with 304.", "datareplication", "", "", checkETag, ""},
	{"datareplication/148", "RFC 9110, 13.1.3", "SHOULD", "Without an `ETag`, a request with the current date in `If-Modified-Since` is answered with 304.", "datareplication", "", "", checkSince, ""},
	{"datareplication/142", "RFC 9111, 5.2.2", "MAY", "Caches may store a page with a next link, for longer than the newest one.", "datareplication", paged, "", checkCache, ""},
	{"datareplication/53", "page format: entity", "MUST", "An entity has a `Content-Type`.", "datareplication snapshot", "", "missing_content_type_in_entity", "", ""},
	{"datareplication/54", "page format: entity", "MUST", "An entity has a `Last-Modified`, which is an HTTP date.", "datareplication snapshot", "", "missing_last_modified_in_entity invalid_last_modified_in_entity", "", "In a snapshot the page has one as well; a reader uses it for nothing, and the reference implementation writes none."},
	{"datareplication/55", "page format: entity", "MUST", "An entity has a `Content-ID`.", "datareplication snapshot", "", "missing_content_id", "", ""},
	{"datareplication/60", "page format: entity", "MUST", "An entity has an `Operation-Type`: PUT, PATCH or DELETE.", "datareplication snapshot", "", "missing_operation_type invalid_operation_type", "", ""},
	{"datareplication/65", "page format: entity", "MAY", "An entity has a `Content-Length`, which is that of its body.", "datareplication snapshot", "Content-Length of entities", "content_length_mismatch", "", ""},
	{"datareplication/78", "page format", "MUST", "The body is multipart of RFC 2046; its parts have headers of RFC 5322.", "datareplication snapshot", "", "invalid_multipart invalid_part_header undecodable_part_header", "", ""},
	{"datareplication/144", "page format", "MUST", "The boundary does not occur in a body.", "datareplication snapshot", "", "", "", "None is possible: such a body looks like two parts, and the second one lacks its headers (`missing_content_type_in_entity`)."},
	{"datareplication/151", "page format", "MUST", "A page ends with the closing delimiter.", "datareplication snapshot", "", "", checkClosing, "A response without a length that lacks it is read again: a transfer that breaks off looks the same."},
	{"datareplication/83", "page format", "SHOULD", "Bodies are sent as they are.", "datareplication snapshot", "", "content_transfer_encoding", "", ""},
	{"datareplication/130", "snapshot: index", "MUST", "The index is JSON with `id`, `createdAt` and `pages`.", "snapshot", "", "invalid_snapshot_index", "", ""},
	{"datareplication/133", "snapshot: index", "MUST", "The URLs of pages are absolute.", "snapshot", "", "relative_page_url", "", ""},
	{"datareplication/149", "snapshot", "MUST", "A snapshot stays as it is while it is read.", "snapshot", "", "snapshot_replaced", "", ""},
	{"datareplication/141", "snapshot", "MUST", "The feed has what has changed since `createdAt`.", "snapshot", "feed and snapshot", "snapshot_entity_not_in_feed feed_not_old_enough", "", ""},

	{"syndication/14", "RFC 5005, 2, by its validator", "MUST NOT", "A complete document has no links to other pages or archives.", both, "complete", "mixed_dialects current_is_not_self", "", ""},
	{"syndication/74", "RFC 5005, 3", "MUST", "A paged document has a link `first`, `last`, `previous` or `next`.", both, "", "", "", "None is possible: a document without them is not paged."},
	{"syndication/52", "RFC 5005, 4", "SHOULD NOT", "The entries of an archive do not change.", both, "archived", "", checkClosed, ""},
	{"syndication/51", "RFC 5005, 4", "SHOULD NOT", "The URL of an archive does not change.", both, "archived", "", checkURLs, ""},
	{"syndication/87", "RFC 5005, 4", "MUST", "A document has `prev-archive`, unless there is no older archive.", both, "", "history_not_reachable", "", "Without the flag that draft 04 has, the end of the archives looks the same."},
	{"syndication/150", "RFC 5005, 4", "SHOULD", "An archive has `next-archive`, which leads back to the document with its `prev-archive`, unless there is no newer archive.", both, "archived", "", checkNext, ""},
	{"syndication/45", "RFC 5005, 4", "SHOULD", "An archive names the subscription document as `current`.", both, "archived", "subscribed_to_archive", checkCurrent, ""},
	{"syndication/140", "RFC 5005, 4", "SHOULD", "An archive has `fh:archive`.", both, "archived", "", checkFlag, ""},
	{"syndication/64", "RFC 5005, 4.1", "SHOULD", "Duplicates can be removed without ambiguity.", both, "archived", "duplicate_ids archive_newer_than_feed", "", ""},
	{"syndication/30", "RFC 5005, 4.1", "MAY", "All archives can be read. A publisher may refuse one, or have lost it.", both, "archived", "archive_gone archive_refused archive_unreadable archive_foreign", "", ""},
	{"syndication/36", "RFC 5005, 4", "MUST", "The archives form no loop.", both, "archived", "loop", "", ""},
	{"syndication/83", "drafts 00 to 04: flag", "MUST", "The flag `fh:stateful` or `fh:incremental` is true or false, and occurs once.", both, "flags of the drafts", "invalid_flag", "", ""},
	{"syndication/81", "draft 00: this, PaceFeedState", "MUST", "The URL of `this` is unique to its document, and permanent.", both, "snapshots", "this_is_not_permanent", "", ""},
	{"syndication/84", "draft 00: prev", "MUST NOT", "A document that is the whole feed does not link to an older one.", both, "complete", "mixed_dialects", "", ""},
	{"syndication/79", "PaceFeedState", "SHOULD", "A document has `this` and `prev`.", both, "", "", "", "None: without them it is a window, as most feeds are."},
	{"syndication/145", "RFC 4287, 4.2.6", "MUST", "The `atom:id` of an entry never changes.", "atom", "", "weak_identity identities_changed", "", "An entry without one has the ID of its link, or that of its content."},
	{"syndication/18", "RFC 4287, 4.1.1", "SHOULD", "Entries of one document with the same ID have different update times.", "atom", "", "duplicate_ids shared_ids", "", ""},
	{"syndication/17", "RFC 4287, 1.2", "MUST", "The elements of Atom are in its namespace.", "atom", "", "missing_namespace", "", ""},
	{"syndication/142", "RFC 4287, 4.1.1", "MUST", "A feed and each entry have one `atom:id`, one `atom:title` and one `atom:updated`.", "atom", "", "", checkElements, ""},
	{"syndication/151", "RFC 4287, 4.1.1", "MUST", "A feed has an `atom:author`, unless each entry has one.", "atom", "", "", checkAuthor, ""},
	{"syndication/152", "RSS 2.0 and 1.0", "MUST", "A channel has `title`, `link` and `description`, and an item `title` or `description`.", "rss rdf", "", "", checkElements, ""},
	{"syndication/144", "RFC 4287, 3.3; RSS 2.0", "MUST", "Dates are dates of RFC 3339; in RSS, of RFC 822; `dc:date` is one of W3C-DTF.", both, "", "invalid_date", checkDates, "`future_date` reports dates that are valid and in the future."},
	{"syndication/141", "RFC 4287, 4.2.7", "MUST", "A link has a `href` that is an IRI reference.", both, "", "invalid_link", checkLinks, ""},
	{"syndication/143", "RFC 4287, 4.1.1", "MUST NOT", "There are not several alternate links of one type and language.", "atom", "", "", checkAlternates, "`repeated_link` counts links between documents that are there twice."},
	{"syndication/77", "RFC 8288, 1", "MUST", "A link in the HTTP header means the same as one in the document.", both, needsHeaderLink, "link_differs_in_header", "", ""},
	{"syndication/66", "RSS 2.0", "SHOULD", "An item has a `guid`, which is unique.", "rss", "", "duplicate_ids shared_ids", checkItemIDs, ""},
	{"syndication/130", "RSS 1.0, 5.5", "MUST", "An item has an `rdf:about`, which is unique.", "rdf", "", "duplicate_ids shared_ids", checkItemIDs, ""},
	{"syndication/149", "RSS 2.0, syndication module", "MUST", "`ttl`, `skipHours` and `sy:updatePeriod` are numbers and names of the specification.", both, "polling hints", "invalid_polling_hint", "", ""},
	{"syndication/102", "RFC 6721, 3", "MUST", "A tombstone has `ref` and `when`.", both, "tombstones", "invalid_tombstone", "", ""},
	{"syndication/124b", "XML 1.0", "MUST", "A document is well-formed, and ends with its root element.", both, "", "not_well_formed trailing_content late_xml_declaration undefined_entity", checkWellFormed, ""},
	{"syndication/124c", "Namespaces in XML 1.0", "MUST", "Prefixes are declared.", both, "", "undeclared_prefix", "", ""},
	{"syndication/115", "RFC 7303, 3", "SHOULD", "HTTP header and document name the same encoding.", both, "", "charset_mismatch", "", ""},
	{"syndication/13", "RFC 3229, 10.4.1", "MUST NOT", "A server sends 226 only to a client that asks for it.", both, "", "partial_document", "", ""},
	{"syndication/139", "RFC 9110, 9.3.2", "SHOULD", "HEAD is answered with the header of GET.", both, "", "", checkHead, ""},
	{"syndication/146", "RFC 9110, 13.1.2", "MUST", "A request with the current `ETag` in `If-None-Match` is answered with 304.", both, "", "", checkETag, ""},
	{"syndication/147", "RFC 9110, 13.1.3", "SHOULD", "Without an `ETag`, a request with the current date in `If-Modified-Since` is answered with 304.", both, "", "", checkSince, ""},
	{"syndication/148", "RFC 9111, 5.2.2", "MAY", "Caches may store an archive, for longer than the subscription document.", both, "archived", "", checkCache, ""},

	{"json-feeds/20", "JSON Feed 1.1: top-level", "MUST", "A feed has a `version`, a `title` and a list of `items`.", "jsonfeed", "", "", checkMembers, ""},
	{"json-feeds/32", "JSON Feed 1.1: suggestions", "SHOULD", "The media type is `application/feed+json`.", "jsonfeed", "", "", checkMedia, ""},
	{"json-feeds/21", "JSON Feed 1.1: items", "MUST", "An item has an `id`, which is a string and unique, and never changes.", "jsonfeed", "", "weak_identity duplicate_ids shared_ids identities_changed", checkItemIDs, ""},
	{"json-feeds/23", "JSON Feed 1.1: items", "MUST", "An item has `content_html` or `content_text`.", "jsonfeed", "", "", checkContent, ""},
	{"json-feeds/36", "JSON Feed 1.1: items", "MUST", "Members have the types of the specification, and an attachment has `url` and `mime_type`.", "jsonfeed", "", "", checkTypes, ""},
	{"json-feeds/24", "JSON Feed 1.1: items", "MUST", "Dates are dates of RFC 3339.", "jsonfeed", "", "invalid_date", checkDates, ""},
	{"json-feeds/27", "JSON Feed 1.1: top-level", "MUST NOT", "`next_url` does not lead to a document that was there before.", "jsonfeed", "next_url", "loop", "", ""},
	{"json-feeds/29", "JSON Feed 1.1: top-level", "MUST", "A feed with `expired` has nothing new any more.", "jsonfeed", "", "", "", "None: no reader can see what comes later. `feed_expired` reports the member."},
	{"json-feeds/28", "RFC 8259, 4 and 8.2", "SHOULD", "The names of an object are unique, and strings have whole characters.", "jsonfeed", "", "repeated_member invalid_text", "", ""},
	{"json-feeds/33", "JSON Feed 1.1: suggestions", "SHOULD", "Conditional requests are answered with 304.", "jsonfeed", "", "", checkConditional, ""},

	{"json-feeds/12", "http-feeds", "MUST", "The answer is a list of the media type `application/cloudevents-batch+json`.", "http-feeds", "", "", checkMedia, ""},
	{"json-feeds/5", "http-feeds: event ID", "MUST", "`lastEventId` continues behind the event with that ID.", "http-feeds", "", "repeated_event", checkPosition, ""},
	{"json-feeds/9", "http-feeds: event ID", "MUST", "Each ID is used once.", "http-feeds", "", "repeated_content_id", "", ""},
	{"json-feeds/10", "CloudEvents 1.0.2, 3", "MUST", "An event has `specversion` 1.0, `id`, `source` and `type`.", "http-feeds", "", "invalid_specversion", checkMembers, ""},
	{"json-feeds/17", "CloudEvents 1.0.2, 3.2", "MUST", "`time` is RFC 3339.", "http-feeds", "", "invalid_event_time", checkDates, ""},
	{"json-feeds/18", "CloudEvents JSON format, 3.1", "MUST", "An event has no member twice, not both `data` and `data_base64`, and whole characters.", "http-feeds", "", "data_and_data_base64 repeated_event_member invalid_event_text", "", ""},
	{"json-feeds/19", "CloudEvents 1.0.2, 3.1", "MUST", "Names of attributes have lower-case letters and digits only.", "http-feeds", "", "invalid_attribute_name", "", ""},
	{"json-feeds/35", "http-feeds: event feeds", "MUST", "Events do not change. Compaction may delete them.", "http-feeds", "", "", checkClosed, ""},
	{"json-feeds/34", "RFC 9110, 13.1.2", "MUST", "A request with the current `ETag` in `If-None-Match` is answered with 304.", "http-feeds", "", "", checkETag, ""},
}

// binds reports whether a feed that breaks the rule does not conform.
func (q *Requirement) binds(strict bool) bool {
	return strings.HasPrefix(q.Level, "MUST") || strict && strings.HasPrefix(q.Level, "SHOULD")
}

// specifications have the beginnings of sections, and the URL of their document.
var specifications = [][2]string{
	{"RSS 1.0", "https://web.resource.org/rss/1.0/spec"},
	{"RSS", "https://www.rssboard.org/rss-specification"},
	{"JSON Feed", "https://www.jsonfeed.org/version/1.1/"},
	{"http-feeds", "https://www.http-feeds.org/"},
	{"CloudEvents JSON", "https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md"},
	{"CloudEvents", "https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md"},
	{"XML", "https://www.w3.org/TR/xml/"},
	{"Namespaces", "https://www.w3.org/TR/xml-names/"},
	{"draft", "https://datatracker.ietf.org/doc/draft-nottingham-atompub-feed-history/"},
	{"PaceFeedState", "https://www.intertwingly.net/wiki/pie/PaceFeedState"},
	{"", "https://github.com/datareplication/spec"},
}

var rfcSection = regexp.MustCompile(`^RFC (\d+), ([\d.]+)`)

// links returns the URLs of the specification and of the case.
func (q *Requirement) links() (specification, caseURL string) {
	if m := rfcSection.FindStringSubmatch(q.Section); m != nil {
		specification = "https://www.rfc-editor.org/rfc/rfc" + m[1] + "#section-" + m[2]
	} else {
		i := slices.IndexFunc(specifications, func(s [2]string) bool { return strings.HasPrefix(q.Section, s[0]) })
		specification = specifications[i][1]
	}
	list, _, _ := strings.Cut(q.ID, "/")
	return specification, "https://github.com/feedbridge/feedbridge/blob/main/docs/cases/" + list + ".md"
}

// subjects find in a document what a rule is about, by what the rule needs.
var subjects = map[string]*regexp.Regexp{
	"Content-Length of entities": regexp.MustCompile(`(?i)\ncontent-length:`),
	"tombstones":                 regexp.MustCompile(`[<:]deleted-entry\s`),
	"polling hints":              regexp.MustCompile(`<(\w+:)?(ttl|skipHours|skipDays|updatePeriod|updateFrequency)[\s>]`),
	"flags of the drafts":        regexp.MustCompile(`(?i)[<:](stateful|incremental)[\s>]`),
	"next_url":                   regexp.MustCompile(`"next_url"`),
}

// needsHeaderLink is what a rule needs that is about links in the header.
const needsHeaderLink = "links in the HTTP header"
