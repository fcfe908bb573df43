package serve

// contentType returns the media type of a page.
func (f Format) contentType(p *page) string {
	switch f {
	case Atom:
		return "application/atom+xml; charset=utf-8"
	case RSS:
		return "application/rss+xml; charset=utf-8"
	case JSONFeed:
		return "application/feed+json"
	case HTTPFeeds:
		return "application/cloudevents-batch+json"
	}
	return `multipart/mixed; boundary="` + p.boundary + `"`
}

// appendEntity appends an entity to a page.
func (f Format) appendEntity(b []byte, p *page, e *entity) []byte {
	switch f {
	case Atom:
		return appendAtomEntry(b, e)
	case RSS:
		return appendRSSItem(b, e)
	case JSONFeed:
		return appendJSONItem(b, e)
	}
	return appendPart(b, e, p.boundary)
}

// headAndTail returns the bytes of a page before and after the entities.
func (f Format) headAndTail(c *Config, p *page) (head, tail []byte) {
	switch f {
	case Atom:
		return atomHeadAndTail(c, p)
	case RSS:
		return rssHeadAndTail(c, p)
	case JSONFeed:
		return jsonFeedHeadAndTail(c, p)
	}
	return nil, []byte("--" + p.boundary + "--\r\n")
}
