"""A trained parser as a service with a page: `lagr serve RUN`. Needs `pip install 'lagr[serve]'`."""
