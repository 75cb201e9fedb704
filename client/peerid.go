package client

// PeerID is what the session calls itself towards peers, and should towards trackers (BEP 3).
func (s *Session) PeerID() [20]byte { return s.engine.PeerID() }
