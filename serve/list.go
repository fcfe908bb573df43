package serve

import "net/http"

func (s *Server) list(w http.ResponseWriter, r *http.Request) {}
