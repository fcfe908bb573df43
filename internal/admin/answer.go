package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// handler answers the requests of the clients that come by TCP, or of those by the Unix socket.
type handler struct {
	*inventory
	trusted bool // changes need no token
}

// writeJSON answers with v, indented: people read it with curl.
func (h *handler) writeJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		h.opts.Log.Error("cannot encode the status as JSON", "error", err)
		http.Error(w, "cannot encode the status as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(h.redact.JSON(body.Bytes(), longestText))
}
