"""How clients reach pods through Services: endpoints, proxies and forwarded ports."""
