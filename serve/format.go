package serve

// format writes pages.
type format interface {
	// contentType returns the media type of a page.
	contentType(p *page) string
	// entity appends an entity to a page.
	appendEntity(b []byte, p *page, e *entity) []byte
	// frame returns the bytes before and behind the entities.
	headAndTail(c *Config, p *page) (head, tail []byte)
}

var formats = map[Format]format{DataReplication: multipart{}, Atom: atomFormat{}, RSS: rssFormat{}}
